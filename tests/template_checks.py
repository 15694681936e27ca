"""Checks of template.yaml that no linter makes: what the functions and the ledger rely on.

Run by tests/run; by hand: `.tools/venv/bin/python tests/template_checks.py [FILE]`. Exit 1 and a line for each finding.
"""

import pathlib
import re
import sys

import yaml

# The variables that the functions read and their defaults; None where there is none.
CONTRACT = {
    "MONGODB_URI": None,
    "REDIS_URL": None,
    "REDIS_CLUSTER": "false",
    "REDIS_KEY_PREFIX": "jobs",
    "RETRY_BASE_DELAY": "2s",
    "RETRY_MAX_DELAY": "15m",
    "RETRY_MAX_ATTEMPTS": "5",
    "RETRY_JITTER": "0",
    "ATTEMPT_TIMEOUT": "24h",
    "CLAIM_TIMEOUT": "60s",
    "SWEEP_GRACE": "2m",
    "DRAIN_FOR": "45s",  # the function's own default is one pass; here it fills the minute between two schedules
    "DISPATCH_TARGET": "redis",
}
ADDRESSES = {"MONGODB_URI": "MongoDbSecretArn", "REDIS_URL": "RedisSecretArn"}
RETRY_SETTINGS = {name for name in CONTRACT if name.startswith("RETRY_")}
REDIS_SETTINGS = {"REDIS_URL", "REDIS_CLUSTER", "REDIS_KEY_PREFIX"}
VARIABLES_OF = {
    "job-failed": {"MONGODB_URI"} | REDIS_SETTINGS | RETRY_SETTINGS,
    "job-succeeded": {"MONGODB_URI"},
    "retry-scheduler": set(CONTRACT),
    "audit": {"MONGODB_URI", "CLAIM_TIMEOUT", "SWEEP_GRACE"} | REDIS_SETTINGS,
}
DETAIL_TYPE_OF = {"job-failed": "Job Failed", "job-succeeded": "Job Succeeded"}


class Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short tags, read as their long form: `!Ref X` is `{"Ref": "X"}`."""


def short_tag(loader, suffix, node):
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}


Loader.add_multi_constructor("!", short_tag)


def strings(value):
    """Every string within a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def statements(role):
    """The statements of a role's own policies, those under a condition included."""
    for policy in role.get("Policies", []):
        for statement in policy["PolicyDocument"]["Statement"]:
            if "Fn::If" in statement:
                yield from (branch for branch in statement["Fn::If"][1:] if "Effect" in branch)
            else:
                yield statement


def seconds(duration):
    number, unit = re.fullmatch(r"([0-9]+)(ms|s|m|h)", duration).groups()
    return int(number) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[unit]


def check(template):
    """Yields a line for each finding."""
    resources, parameters = template["Resources"], template["Parameters"]
    common = template["Globals"]["Function"]

    def resource(reference, kind):
        """The resource that a Ref, or a GetAtt of its ARN, points at; empty where it is not of this kind."""
        name = None
        if isinstance(reference, dict):
            name = reference.get("Ref") or (reference.get("Fn::GetAtt") or [None])[0]
        found = resources.get(name, {})
        return found.get("Properties", {}) if found.get("Type") == kind else {}

    functions = {
        entry["Metadata"]["BuildProperties"]["Binary"]: (logical, {**common, **entry["Properties"]})
        for logical, entry in resources.items()
        if entry["Type"] == "AWS::Serverless::Function"
    }
    if set(functions) != set(VARIABLES_OF):
        yield f"functions are {sorted(functions)}, not {sorted(VARIABLES_OF)}"

    for name, (logical, function) in functions.items():
        if resources[logical]["Metadata"].get("BuildMethod") != "rust-cargolambda":
            yield f"{name}: BuildMethod is not rust-cargolambda"
        if function.get("CodeUri") != f"functions/{name}":
            yield f"{name}: CodeUri is not functions/{name}"
        if function.get("Architectures") != ["arm64"]:
            yield f"{name}: not built for arm64"
        if (function.get("Runtime"), function.get("Handler")) != ("provided.al2023", "bootstrap"):
            yield f"{name}: not bootstrap on provided.al2023"
        if function.get("LoggingConfig", {}).get("LogFormat") != "JSON":
            yield f"{name}: logs are not JSON"
        if "RetentionInDays" not in resource(function.get("LoggingConfig", {}).get("LogGroup"), "AWS::Logs::LogGroup"):
            yield f"{name}: no log group with a retention"

        own = resources[logical]["Properties"].get("Environment", {}).get("Variables", {})
        variables = {**common.get("Environment", {}).get("Variables", {}), **own}
        for variable in sorted(set(variables) - set(CONTRACT)):
            yield f"{name}: sets {variable}, which no function reads"
        for variable in sorted((set(variables) & set(CONTRACT)) ^ VARIABLES_OF.get(name, set())):
            yield f"{name}: {variable} is {'set and not used' if variable in variables else 'not set'}"
        for variable, value in variables.items():
            if variable in ADDRESSES:
                texts = [text for text in strings(value) if not text.startswith("Has")]
                if not texts or not all(text.startswith("secretsmanager:${" + ADDRESSES[variable] + "}") for text in texts):
                    yield f"{name}: {variable} is not a reference to the secret of {ADDRESSES[variable]}"
            elif variable in CONTRACT:
                default = parameters.get(value.get("Ref") if isinstance(value, dict) else None, {}).get("Default")
                if str(default) != CONTRACT[variable]:
                    yield f"{name}: {variable} is not a parameter with default {CONTRACT[variable]}"

        readable = {ADDRESSES[variable] for variable in variables if variable in ADDRESSES}
        granted = set()
        for statement in statements(resource(function.get("Role"), "AWS::IAM::Role")):
            if "*" in strings(statement.get("Resource")) or any("*" in action for action in strings(statement["Action"])):
                yield f"{name}: statement {statement.get('Sid')} has a wildcard"
            if "secretsmanager:GetSecretValue" in strings(statement["Action"]):
                granted |= set(strings(statement["Resource"]))
        if granted != readable:
            yield f"{name}: may read the secrets of {sorted(granted)}, needs {sorted(readable)}"

    for name, detail_type in DETAIL_TYPE_OF.items():
        _, function = functions.get(name, (None, {"Timeout": 0}))
        mappings = [event["Properties"] for event in function.get("Events", {}).values() if event["Type"] == "SQS"]
        if len(mappings) != 1:
            yield f"{name}: {len(mappings)} queues feed it, not one"
            continue
        mapping = mappings[0]
        if mapping.get("FunctionResponseTypes") != ["ReportBatchItemFailures"]:
            yield f"{name}: one bad record would fail its batch: no ReportBatchItemFailures"
        if mapping.get("BatchSize") != 10 or "MaximumConcurrency" not in mapping.get("ScalingConfig", {}):
            yield f"{name}: batch size or maximum concurrency is not set"
        queue = resource(mapping["Queue"], "AWS::SQS::Queue")
        if queue.get("VisibilityTimeout", 30) < 6 * function["Timeout"]:
            yield f"{name}: visibility timeout {queue.get('VisibilityTimeout', 30)} is under six times the function's {function['Timeout']}"
        redrive = queue.get("RedrivePolicy", {})
        dead_letters = resource(redrive.get("deadLetterTargetArn"), "AWS::SQS::Queue")
        if not dead_letters or redrive.get("deadLetterTargetArn") == mapping["Queue"]:
            yield f"{name}: its queue has no dead-letter queue"
        if redrive.get("maxReceiveCount", 0) < 20:
            yield f"{name}: maxReceiveCount {redrive.get('maxReceiveCount')} is under 20: an outage would kill events"
        for label, one in (("queue", queue), ("dead-letter queue", dead_letters)):
            if one.get("MessageRetentionPeriod") != 14 * 24 * 3600 or one.get("SqsManagedSseEnabled") is not True:
                yield f"{name}: its {label} does not keep messages for 14 days, encrypted"

        queue_name = mapping["Queue"]["Fn::GetAtt"][0]
        rules = [
            (logical, entry["Properties"])
            for logical, entry in resources.items()
            if entry["Type"] == "AWS::Events::Rule" and entry["Properties"]["EventPattern"].get("detail-type") == [detail_type]
        ]
        if len(rules) != 1:
            yield f"{name}: {len(rules)} rules for {detail_type!r}, not one"
            continue
        rule_name, rule = rules[0]
        if [target.get("Arn") for target in rule["Targets"]] != [mapping["Queue"]]:
            yield f"{name}: rule {rule_name} does not go to its queue"
        if not all(resource(target.get("DeadLetterConfig", {}).get("Arn"), "AWS::SQS::Queue") for target in rule["Targets"]):
            yield f"{name}: rule {rule_name} has no dead-letter queue for what it cannot deliver"
        senders = [
            statement.get("Condition", {}).get("ArnEquals", {}).get("aws:SourceArn")
            for entry in resources.values()
            if entry["Type"] == "AWS::SQS::QueuePolicy" and {"Ref": queue_name} in entry["Properties"]["Queues"]
            for statement in entry["Properties"]["PolicyDocument"]["Statement"]
            if statement["Effect"] == "Allow"
        ]
        if senders != [{"Fn::GetAtt": [rule_name, "Arn"]}]:
            yield f"{name}: its queue does not take events from rule {rule_name} alone"

    _, scheduler = functions.get("retry-scheduler", (None, {}))
    schedules = [event["Properties"] for event in scheduler.get("Events", {}).values() if event["Type"] == "ScheduleV2"]
    if [schedule.get("ScheduleExpression") for schedule in schedules] != ["rate(1 minute)"]:
        yield "retry-scheduler: not started each minute"
    if not seconds(parameters["DrainFor"]["Default"]) < scheduler.get("Timeout", 3) < 60:
        yield "retry-scheduler: its timeout is not between DRAIN_FOR and the schedule's minute"
    # The longest DRAIN_FOR that its pattern lets through.
    if [s for s in range(scheduler.get("Timeout", 3), 1000) if re.search(parameters["DrainFor"]["AllowedPattern"], f"{s}s")]:
        yield "retry-scheduler: DrainFor may be longer than the function's timeout"
    # Zero has a meaning for these: never, and at once.
    for name in ("AttemptTimeout", "SweepGrace"):
        if not re.search(parameters[name]["AllowedPattern"], "0s"):
            yield f"parameter {name}: its pattern refuses 0s, which the functions take"


def main():
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "template.yaml"
    findings = list(check(yaml.load(path.read_text(), Loader)))
    for finding in findings:
        print(f"{path.name}: {finding}", file=sys.stderr)
    if findings:
        sys.exit(1)
    print(f"{path.name}: what the functions rely on holds")


if __name__ == "__main__":
    main()
