//! The model by hand: `model [search [NAME…] [--wide] [--threads N] | guards | docs FILE]`.
#![allow(clippy::print_stdout)]

use std::process::ExitCode;

use recoup_model::Scenario;
use recoup_model::report::{Part, guards, searches, summary};
use recoup_model::search::search;
use recoup_model::tale::tell;

const USAGE: &str =
    "usage: model search [NAME…] [--wide] [--threads N]   search to the end (all names: every search)
       model guards                                  take every guard out once
       model docs FILE                               write both tables into FILE";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.split_first() {
        Some((&"search", rest)) => Searches::read(rest).map(Searches::run),
        Some((&"guards", [])) => {
            let report = guards(&mut |line| println!("{line}"));
            Ok(complain(&report.wrong))
        }
        Some((&"docs", [file])) => write_document(file),
        Some(_) | None => Err(USAGE.to_owned()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

struct Searches {
    scenarios: Vec<Scenario>,
    threads: usize,
}

impl Searches {
    fn read(words: &[&str]) -> Result<Self, String> {
        let mut named = Vec::new();
        let (mut wide, mut threads) = (false, 1);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--wide" => wide = true,
                "--threads" => {
                    let number = words.next().and_then(|n| n.parse().ok()).filter(|n| *n > 0);
                    threads = number.ok_or("--threads wants a number, such as --threads 4")?;
                }
                name => {
                    let known = Scenario::ALL.map(|scenario| scenario.name).join(", ");
                    named.push(Scenario::named(name).ok_or(format!("no search is called {name}: {known}"))?);
                }
            }
        }
        let chosen = if named.is_empty() { Scenario::ALL.to_vec() } else { named };
        let scenarios = chosen.into_iter().map(|s| if wide { s.widened() } else { s }).collect();
        Ok(Self { scenarios, threads })
    }

    fn run(self) -> bool {
        let mut all_hold = true;
        for scenario in self.scenarios {
            let searched = search(scenario, None, self.threads);
            println!("{}", summary(scenario, &searched));
            if let Some((fault, way)) = searched.found {
                all_hold = false;
                for (i, step) in tell(scenario, None, fault, &way).iter().enumerate() {
                    println!("  {}. {step}", i + 1);
                }
            }
        }
        all_hold
    }
}

fn write_document(file: &str) -> Result<bool, String> {
    let mut document = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    let mut say = |line: &str| println!("{line}");
    let mut holds = true;
    for (part, report) in [(Part::Searches, searches(&mut say)), (Part::Guards, guards(&mut say))] {
        holds &= complain(&report.wrong);
        document = part.put(&document, &report.text).ok_or(format!("{file}: its marks are missing"))?;
    }
    std::fs::write(file, document).map_err(|e| format!("{file}: {e}"))?;
    Ok(holds)
}

fn complain(wrong: &[String]) -> bool {
    for line in wrong {
        eprintln!("{line}");
    }
    wrong.is_empty()
}
