//! The functions under the Lambda runtime.
