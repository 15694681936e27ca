//! The table: what each service that runs metered jobs sends when one of them ends.
//!
//! One row a service and detail-type; field names are the services', to the letter. docs/EVENTS.md says the same to
//! people and is held to this table by a test. A new service is a row here and a folder in `events/`.
//!
//! Three columns need a reason:
//!
//! - **attempt** holds no counter of a service. What Batch lists in `attempts[]`, what Step Functions counts as redrives
//!   and RunPod as retries happens within what is one attempt to Recoup: one submission after one dispatch. So the attempt
//!   is only what the platform itself put beside the job's id, or at the end of a name, see [`ATTEMPT_MARK`].
//! - **final_words** are those after which another attempt is nobody's wish: a person, or a program for one, stopped
//!   the work. Everything else may be tried again; `max_attempts` bounds it.
//! - **part_of** tells that the event is about a part of the job that carries the job's marks too.

use super::Meaning::{ByExitCodes, Failure, Success};
use super::{Carrier, Delivery, Row};

/// What parts a job's id from the attempt in a name that the platform chose: `job-1-recoup-2` is attempt 2 of `job-1`.
/// Letters and dashes, because that is all that every service allows in names.
pub const ATTEMPT_MARK: &str = "-recoup-";

/// What rows have in common.
const NONE: Row = Row {
    source: "",
    carrier: Carrier::Webhook,
    delivery: Delivery::Durable,
    job_id: &[],
    native_id: &[],
    attempt: &[],
    status: "",
    words: &[],
    codes: &[],
    final_words: &[],
    reason: &[],
    part_of: &[],
    left_out: None,
};

/// The three kinds of SageMaker jobs differ in their names only.
const SAGEMAKER: Row = Row {
    source: "aws.sagemaker",
    delivery: Delivery::BestEffort,
    job_id: &["detail.Tags[recoup_job_id]", "detail.Environment.recoup_job_id"],
    attempt: &["detail.Tags[recoup_attempt]", "detail.Environment.recoup_attempt"],
    words: &[("Completed", Success), ("Failed", Failure), ("Stopped", Failure)],
    codes: &["detail.SecondaryStatus"],
    final_words: &["Stopped"],
    reason: &["detail.FailureReason"],
    ..NONE
};

/// Rekognition Video and Textract differ in what their notifications say of the input.
const NOTIFICATION: Row = Row {
    delivery: Delivery::Durable,
    job_id: &["JobTag"],
    native_id: &["JobId"],
    status: "Status",
    words: &[("SUCCEEDED", Success), ("FAILED", Failure), ("ERROR", Failure)],
    ..NONE
};

/// Every row.
pub const TABLE: &[Row] = &[
    Row {
        source: "aws.batch",
        carrier: Carrier::EventBridge { detail_type: "Batch Job State Change" },
        job_id: &[
            "detail.tags.recoup_job_id",
            "detail.parameters.recoup_job_id",
            "detail.container.environment[recoup_job_id]",
            "detail.ecsProperties.taskProperties.containers.environment[recoup_job_id]",
            "detail.eksProperties.podProperties.containers.env[recoup_job_id]",
        ],
        native_id: &["detail.jobId"],
        attempt: &[
            "detail.tags.recoup_attempt",
            "detail.parameters.recoup_attempt",
            "detail.container.environment[recoup_attempt]",
            "detail.ecsProperties.taskProperties.containers.environment[recoup_attempt]",
            "detail.eksProperties.podProperties.containers.env[recoup_attempt]",
        ],
        status: "detail.status",
        words: &[("SUCCEEDED", Success), ("FAILED", Failure)],
        codes: &["detail.isCancelled", "detail.isTerminated"],
        final_words: &["isCancelled", "isTerminated"],
        reason: &["detail.statusReason", "detail.container.reason", "detail.container.exitCode"],
        // A child of an array, a node of a multi-node job: its parent tells how the whole ended.
        part_of: &["detail.arrayProperties.index", "detail.nodeDetails.nodeIndex"],
        ..NONE
    },
    Row {
        source: "aws.states",
        carrier: Carrier::EventBridge { detail_type: "Step Functions Execution Status Change" },
        delivery: Delivery::BestEffort,
        job_id: &["detail.input.recoup_job_id"],
        native_id: &["detail.name", "detail.executionArn"],
        attempt: &["detail.input.recoup_attempt"],
        status: "detail.status",
        words: &[("SUCCEEDED", Success), ("FAILED", Failure), ("TIMED_OUT", Failure), ("ABORTED", Failure)],
        codes: &["detail.error"],
        final_words: &["ABORTED"],
        reason: &["detail.error", "detail.cause"],
        left_out: Some("detail.inputDetails.included"),
        ..NONE
    },
    Row {
        source: "aws.mediaconvert",
        carrier: Carrier::EventBridge { detail_type: "MediaConvert Job State Change" },
        job_id: &["detail.userMetadata.recoup_job_id"],
        native_id: &["detail.jobId"],
        attempt: &["detail.userMetadata.recoup_attempt"],
        status: "detail.status",
        words: &[("COMPLETE", Success), ("ERROR", Failure), ("CANCELED", Failure)],
        codes: &["detail.errorCode"],
        final_words: &["CANCELED"],
        reason: &["detail.errorCode", "detail.errorMessage"],
        ..NONE
    },
    Row {
        source: "aws.transcribe",
        carrier: Carrier::EventBridge { detail_type: "Transcribe Job State Change" },
        delivery: Delivery::BestEffort,
        native_id: &["detail.TranscriptionJobName"],
        status: "detail.TranscriptionJobStatus",
        words: &[("COMPLETED", Success), ("FAILED", Failure)],
        reason: &["detail.FailureReason"],
        ..NONE
    },
    Row {
        carrier: Carrier::EventBridge { detail_type: "SageMaker Training Job State Change" },
        native_id: &["detail.TrainingJobName"],
        status: "detail.TrainingJobStatus",
        ..SAGEMAKER
    },
    Row {
        carrier: Carrier::EventBridge { detail_type: "SageMaker Transform Job State Change" },
        native_id: &["detail.TransformJobName"],
        status: "detail.TransformJobStatus",
        ..SAGEMAKER
    },
    Row {
        carrier: Carrier::EventBridge { detail_type: "SageMaker Processing Job State Change" },
        native_id: &["detail.ProcessingJobName"],
        status: "detail.ProcessingJobStatus",
        ..SAGEMAKER
    },
    Row {
        source: "aws.ecs",
        carrier: Carrier::EventBridge { detail_type: "ECS Task State Change" },
        job_id: &["detail.overrides.containerOverrides.environment[recoup_job_id]"],
        native_id: &["detail.taskArn"],
        attempt: &["detail.overrides.containerOverrides.environment[recoup_attempt]"],
        status: "detail.lastStatus",
        words: &[("STOPPED", ByExitCodes)],
        codes: &["detail.stopCode"],
        final_words: &["UserInitiated"],
        reason: &["detail.stopCode", "detail.stoppedReason"],
        // AWS Batch runs its jobs as tasks, with the job's environment, and tries them again by itself.
        part_of: &["detail.overrides.containerOverrides.environment[AWS_BATCH_JOB_ID]"],
        ..NONE
    },
    Row {
        source: "aws.bedrock",
        carrier: Carrier::EventBridge { detail_type: "Batch Inference Job State Change" },
        delivery: Delivery::BestEffort,
        native_id: &["detail.batchJobName", "detail.batchJobArn"],
        status: "detail.status",
        // Credits are a whole job's: one that is done in part is not delivered.
        words: &[
            ("Completed", Success),
            ("PartiallyCompleted", Failure),
            ("Failed", Failure),
            ("Stopped", Failure),
            ("Expired", Failure),
        ],
        final_words: &["Stopped"],
        reason: &["detail.failureMessage"],
        ..NONE
    },
    Row { source: "rekognition", carrier: Carrier::Sns { tell_tale: "Video" }, ..NOTIFICATION },
    Row { source: "textract", carrier: Carrier::Sns { tell_tale: "DocumentLocation" }, ..NOTIFICATION },
    Row {
        source: "replicate",
        status: "status",
        words: &[("succeeded", Success), ("failed", Failure), ("aborted", Failure), ("canceled", Failure)],
        final_words: &["canceled"],
        reason: &["error"],
        ..NONE
    },
    Row {
        source: "fal",
        status: "status",
        words: &[("OK", Success), ("ERROR", Failure)],
        reason: &["error", "payload_error"],
        ..NONE
    },
    Row {
        source: "runpod",
        status: "status",
        words: &[("COMPLETED", Success), ("FAILED", Failure), ("TIMED_OUT", Failure), ("CANCELLED", Failure)],
        final_words: &["CANCELLED"],
        reason: &["error"],
        ..NONE
    },
];
