//! SQS and EventBridge.
