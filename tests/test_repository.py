"""The files at the top of the repository that nothing else runs here, held to what they speak of."""

import pathlib
import re
import unittest

import yaml

ROOT = pathlib.Path(__file__).parent.parent


def text(name):
    return (ROOT / name).read_text()


class Repository(unittest.TestCase):
    def test_the_makefile_has_the_commands_of_the_readme(self):
        readme = text("README.md")
        recipes = re.findall(r"^\t(.+)$", text("Makefile"), re.MULTILINE)
        self.assertTrue(recipes)
        for recipe in recipes:
            self.assertIn(recipe, readme)

    def test_the_container_file_copies_what_is_there_and_all_that_cargo_asks_for(self):
        copied = {word for line in re.findall(r"^COPY ([^-].+)$", text("Containerfile"), re.MULTILINE) for word in line.split()[:-1]}
        self.assertEqual([name for name in copied if not (ROOT / name).exists()], [])
        members = re.search(r"members = \[(.*?)\]", text("Cargo.toml"), re.DOTALL).group(1)
        for member in re.findall(r'"(.+?)"', members):
            self.assertTrue(any(member == name or member.startswith(f"{name}/") for name in copied), member)

    def test_the_container_file_names_the_toolchain_that_the_crates_ask_for(self):
        version = re.search(r'rust-version = "(.+?)"', text("Cargo.toml")).group(1)
        self.assertIn(f"library/rust:{version}-", text("Containerfile"))

    def test_the_workflow_runs_steps_that_there_are(self):
        jobs = yaml.safe_load(text(".github/workflows/ci.yml"))["jobs"]
        commands = " ".join(step.get("run", "") for job in jobs.values() for step in job["steps"])
        known = re.search(r'usual_steps="(.+?)"', text("tests/run")).group(1).split()
        known += re.search(r'all_steps="\$usual_steps (.+?)"', text("tests/run")).group(1).split()
        asked = re.findall(r"--only (\w+)", commands)
        self.assertTrue(asked)
        self.assertEqual([step for step in asked if step not in known], [])
        variables = jobs["servers"]["env"]
        for variable in [*variables, "RECOUP_TEST_MONGOD", "RECOUP_TEST_REDIS_SERVER"]:
            self.assertIn(f"{variable} ", text("tests/run"))


if __name__ == "__main__":
    unittest.main()
