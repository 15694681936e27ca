//! MongoDB in trouble: every fault is an error and never an outcome, and the signal that comes again is answered
//! right.
#![allow(clippy::unwrap_used)]

use mongodb::Client;
use mongodb::bson::{Document, doc};
use recoup::job::JobId;
use recoup::ledger::mongo::MongoLedger;
use recoup::ledger::{Ledger, LedgerError, LedgerReader};
use recoup::transition::{ChargeOutcome, FailureOutcome, SuccessOutcome};
use recoup_tests::ledger_suite::commands::{charge, failure_of};
use recoup_tests::ledger_suite::{account, at, job_id, stored};
use recoup_tests::servers::Server;

/// A server of one's own, its switch for faults, and a ledger on it.
struct Faulty {
    server: Server,
    switch: Client,
    ledger: MongoLedger,
}

impl Faulty {
    async fn start(options: &str) -> Self {
        let server = Server::mongodb(true);
        let uri = format!("{}&{options}", server.mongodb_uri("faults"));
        let ledger = MongoLedger::open(&uri).await.unwrap();
        ledger.init().await.unwrap();
        let switch = Client::with_uri_str(server.mongodb_uri("admin")).await.unwrap();
        Self { server, switch, ledger }
    }

    /// Lets the ledger's commands `command` fail in this way; the application's name keeps the switch out of it.
    async fn fail(&self, command: &str, mode: impl Into<mongodb::bson::Bson>, fault: Document) {
        let mut data = doc! { "failCommands": [command], "appName": "recoup" };
        data.extend(fault);
        let set = doc! { "configureFailPoint": "failCommand", "mode": mode.into(), "data": data };
        self.switch.database("admin").run_command(set).await.unwrap();
    }

    async fn mend(&self) {
        let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
        self.switch.database("admin").run_command(off).await.unwrap();
    }

    /// Charge, failure and success, each first under the fault and then again without it. `applied`: whether the
    /// fault lets the write through and only spoils the answer.
    async fn each_signal_twice(&self, id: &JobId, fault: &Document, applied: bool) {
        let ledger = &self.ledger;
        self.fail("insert", "alwaysOn", fault.clone()).await;
        unavailable(&ledger.charge(&charge(id, 40, 5), at(0)).await, fault);
        self.mend().await;
        let charged = ledger.charge(&charge(id, 40, 5), at(1)).await.unwrap().outcome;
        assert_eq!(
            charged,
            if applied { ChargeOutcome::Duplicate } else { ChargeOutcome::Charged },
            "{fault}"
        );

        self.fail("findAndModify", "alwaysOn", fault.clone()).await;
        unavailable(&ledger.record_failure(id, None, &failure_of(1), at(2)).await, fault);
        self.mend().await;
        let failed = ledger.record_failure(id, None, &failure_of(1), at(3)).await.unwrap().outcome;
        let expected = if applied { FailureOutcome::Duplicate } else { FailureOutcome::Refunded };
        assert_eq!(failed, expected, "{fault}");
        assert_eq!(stored(ledger, id).await.net, 0, "{fault}");

        self.fail("findAndModify", "alwaysOn", fault.clone()).await;
        unavailable(&ledger.record_success(id, None, at(4)).await, fault);
        self.mend().await;
        let succeeded = ledger.record_success(id, None, at(5)).await.unwrap().outcome;
        let expected = if applied { SuccessOutcome::Duplicate } else { SuccessOutcome::Reclaimed };
        assert_eq!(succeeded, expected, "{fault}");
        assert_eq!(stored(ledger, id).await.net, -40, "{fault}");
    }
}

fn unavailable<T: std::fmt::Debug>(answer: &Result<T, LedgerError>, fault: &Document) {
    assert!(matches!(answer, Err(LedgerError::Unavailable { .. })), "{fault}: {answer:?}");
}

fn unconfirmed(code: i32, name: &str) -> Document {
    doc! { "writeConcernError": { "code": code, "codeName": name, "errmsg": "waiting for replication" } }
}

#[tokio::test]
async fn a_write_that_a_majority_did_not_confirm_is_an_error_and_not_an_outcome() {
    let faulty = Faulty::start("retryWrites=true").await;
    for (code, name) in
        [(64, "WriteConcernFailed"), (100, "UnsatisfiableWriteConcern"), (91, "ShutdownInProgress")]
    {
        let fault = unconfirmed(code, name);
        faulty.each_signal_twice(&job_id(name), &fault, true).await;
    }
    assert_eq!(faulty.ledger.balance(&account("a")).await.unwrap(), -120);
}

#[tokio::test]
async fn a_refusal_that_a_majority_did_not_confirm_is_an_error_too() {
    let faulty = Faulty::start("retryWrites=true").await;
    let id = job_id("job");
    faulty.ledger.charge(&charge(&id, 40, 5), at(0)).await.unwrap();
    faulty.ledger.record_success(&id, None, at(1)).await.unwrap();
    let fault = unconfirmed(64, "WriteConcernFailed");
    faulty.fail("findAndModify", "alwaysOn", fault.clone()).await;
    unavailable(&faulty.ledger.record_failure(&id, None, &failure_of(1), at(2)).await, &fault);
    faulty.mend().await;
    let late = faulty.ledger.record_failure(&id, None, &failure_of(1), at(3)).await.unwrap();
    assert_eq!(late.outcome, FailureOutcome::AlreadyDelivered);
}

#[tokio::test]
async fn a_primary_that_is_gone_is_an_error_and_the_signal_counts_when_it_comes_again() {
    let faulty = Faulty::start("retryWrites=true").await;
    for (code, name) in
        [(10_107, "NotWritablePrimary"), (11_600, "InterruptedAtShutdown"), (189, "PrimarySteppedDown")]
    {
        faulty.each_signal_twice(&job_id(name), &doc! { "errorCode": code }, false).await;
    }
    faulty.each_signal_twice(&job_id("closed"), &doc! { "closeConnection": true }, false).await;
    assert_eq!(faulty.ledger.balance(&account("a")).await.unwrap(), -160);
}

#[tokio::test]
async fn one_broken_connection_is_made_good_by_the_driver_unless_the_uri_says_not_to() {
    for (options, is_repeated) in [("retryWrites=true", true), ("retryWrites=false", false)] {
        let faulty = Faulty::start(options).await;
        let id = job_id("job");
        faulty.ledger.charge(&charge(&id, 40, 5), at(0)).await.unwrap();
        faulty.fail("findAndModify", doc! { "times": 1 }, doc! { "closeConnection": true }).await;
        let failed = faulty.ledger.record_failure(&id, None, &failure_of(1), at(1)).await;
        assert_eq!(failed.is_ok(), is_repeated, "{options}: {failed:?}");
        let again = faulty.ledger.record_failure(&id, None, &failure_of(1), at(2)).await.unwrap().outcome;
        let expected = if is_repeated { FailureOutcome::Duplicate } else { FailureOutcome::Refunded };
        assert_eq!(again, expected, "{options}");
        assert_eq!(stored(&faulty.ledger, &id).await.net, 0);
    }
}

#[tokio::test]
async fn what_the_server_refuses_is_for_a_person_to_mend() {
    let faulty = Faulty::start("retryWrites=true").await;
    let id = job_id("job");
    faulty.ledger.charge(&charge(&id, 40, 5), at(0)).await.unwrap();
    for code in [13, 18, 121] {
        faulty.fail("findAndModify", "alwaysOn", doc! { "errorCode": code }).await;
        let refused = faulty.ledger.record_success(&id, None, at(1)).await;
        assert!(matches!(refused, Err(LedgerError::Refused { .. })), "{code}: {refused:?}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_an_error_and_is_used_again_once_it_does() {
    let faulty = Faulty::start("retryWrites=true").await;
    let id = job_id("job");
    faulty.ledger.charge(&charge(&id, 40, 5), at(0)).await.unwrap();
    faulty.server.freeze(true);
    let silent = faulty.ledger.record_failure(&id, None, &failure_of(1), at(1)).await;
    faulty.server.freeze(false);
    unavailable(&silent, &doc! { "frozen": true });
    // The server may have found the write in its socket after all, before or after this one.
    let again = faulty.ledger.record_failure(&id, None, &failure_of(1), at(2)).await.unwrap().outcome;
    assert!(matches!(again, FailureOutcome::Refunded | FailureOutcome::Duplicate), "{again:?}");
    assert_eq!(stored(&faulty.ledger, &id).await.net, 0);
}

#[tokio::test]
async fn a_server_that_comes_back_is_used_by_the_same_ledger() {
    let mut faulty = Faulty::start("retryWrites=true").await;
    let id = job_id("job");
    faulty.ledger.charge(&charge(&id, 40, 5), at(0)).await.unwrap();
    faulty.server.kill();
    unavailable(&faulty.ledger.record_success(&id, None, at(1)).await, &doc! { "killed": true });
    faulty.server.start();
    let succeeded = faulty.ledger.record_success(&id, None, at(2)).await.unwrap();
    assert_eq!(
        succeeded.outcome,
        SuccessOutcome::Delivered,
        "what was answered before the crash is still there"
    );
}
