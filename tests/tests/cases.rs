//! Each file in `tests/cases` is a test of its own, named after the file.

use std::path::PathBuf;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use recoup_tests::cases::play;

fn main() -> ExitCode {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("tests/cases can be read")
        .map(|entry| entry.expect("its entries can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "there are cases");
    let trials = files.into_iter().map(|file| {
        let name = file.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        Trial::test(name, move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .expect("a runtime can be made");
            runtime.block_on(play(&file)).map_err(Failed::from)
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
