"""The template, broken in each way that template_checks.py looks for: it must find every one of them."""

import copy
import pathlib
import sys
import unittest

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import template_checks as checks  # noqa: E402

TEMPLATE = yaml.load((checks.ROOT / "template.yaml").read_text(), checks.Loader)
SOURCES, METRICS = checks.asked("sources"), checks.asked("metrics")
MANUAL = (checks.ROOT / "docs/OPERATIONS.md").read_text()


def properties(template, resource):
    return template["Resources"][resource]["Properties"]


def variables(template, function):
    return properties(template, function)["Environment"]["Variables"]


def statements(template, role):
    return properties(template, role)["Policies"][0]["PolicyDocument"]["Statement"]


# What is broken, and a part of the line that says so.
BROKEN = [
    (lambda t: variables(t, "JobFailedFunction").update(REDIS_TIMEOUT="5s"), "sets REDIS_TIMEOUT, which no function reads"),
    (lambda t: variables(t, "JobSucceededFunction").pop("MONGODB_URI"), "MONGODB_URI is not set"),
    (lambda t: variables(t, "JobSucceededFunction").update(REDIS_CLUSTER={"Ref": "RedisCluster"}), "REDIS_CLUSTER is set and not used"),
    (lambda t: variables(t, "AuditFunction").update(REDIS_URL="redis://:password@cache"), "REDIS_URL is not a reference"),
    (lambda t: variables(t, "WebhookFunction").update(WEBHOOK_SECRET={"Ref": "WebhookSecretKey"}), "WEBHOOK_SECRET is not a reference"),
    (lambda t: variables(t, "WebhookFunction").update(JOB_FAILED_QUEUE_URL={"Ref": "JobSucceededQueue"}), "is not the URL of JobFailedQueue"),
    (lambda t: t["Parameters"]["RetryBaseDelay"].update(Default="3s"), "RETRY_BASE_DELAY is not a parameter with default 2s"),
    (lambda t: statements(t, "JobFailedRole")[0].update(Resource="*"), "has a wildcard"),
    (lambda t: statements(t, "WebhookRole")[0].update(Resource={"Ref": "MongoDbSecretArn"}), "webhook: may read the secrets of"),
    (lambda t: properties(t, "JobFailedQueue").update(VisibilityTimeout=179), "is under six times"),
    (lambda t: properties(t, "JobFailedQueue")["RedrivePolicy"].update(maxReceiveCount=3), "an outage would kill events"),
    (lambda t: properties(t, "JobSucceededDeadLetterQueue").pop("SqsManagedSseEnabled"), "14 days, encrypted"),
    (lambda t: properties(t, "JobSucceededFunction")["Events"]["Queue"]["Properties"].pop("FunctionResponseTypes"), "no ReportBatchItemFailures"),
    (lambda t: properties(t, "BatchFailedRule")["Targets"].append({"Arn": {"Fn::GetAtt": ["JobSucceededQueue", "Arn"]}}), "its queue takes events from"),
    (lambda t: properties(t, "JobFailedQueuePolicy")["PolicyDocument"]["Statement"][0].pop("Condition"), "its queue takes events from"),
    (lambda t: t["Resources"]["EcsFailedRule"].pop("Condition"), "no parameter switches it on"),
    (lambda t: t["Parameters"]["TakeBatchEvents"].update(Default="true"), "or it is on by default"),
    (lambda t: properties(t, "BedrockFailedRule").update(EventBusName={"Ref": "EventBusName"}), "default bus only"),
    (lambda t: properties(t, "BatchFailedRule")["Targets"][0].pop("DeadLetterConfig"), "no dead-letter queue"),
    (lambda t: properties(t, "BedrockFailedRule")["EventPattern"]["detail"]["status"].remove("PartiallyCompleted"), "('aws.bedrock'"),
    (lambda t: properties(t, "SageMakerSucceededRule")["EventPattern"]["detail-type"].pop(), "('aws.sagemaker'"),
    (lambda t: t["Resources"].pop("TranscribeSucceededRule"), "('aws.transcribe'"),
    (lambda t: properties(t, "TextractFailedSubscription")["FilterPolicy"]["Status"].append("SUCCEEDED"), "topic of textract"),
    (lambda t: properties(t, "NoDrainAlarm").update(MetricName="DrainsDone"), "the code writes no DrainsDone"),
    (lambda t: properties(t, "NoDrainAlarm").update(TreatMissingData="missing"), "would be no alarm"),
    (lambda t: properties(t, "ViolationsAlarm").pop("AlarmActions"), "it tells nobody"),
    (lambda t: t["Resources"].update(OtherAlarm=t["Resources"]["NoDrainAlarm"]), "OtherAlarm: docs/OPERATIONS.md does not say"),
    (lambda t: t["Resources"].pop("ViolationsAlarm"), "has ViolationsAlarm, which the template has not"),
    (lambda t: dashboard(t, "Swept", "Sweeped"), "Dashboard: the code writes no Sweeped"),
    (lambda t: dashboard(t, "${AuditFunction}", "${Auditor}"), "Dashboard: Auditor is not there"),
    (lambda t: properties(t, "RetrySchedulerFunction").update(Timeout=60), "not between DRAIN_FOR and the schedule's minute"),
]


def dashboard(template, this, that):
    body = properties(template, "Dashboard")["DashboardBody"]
    body["Fn::Sub"] = body["Fn::Sub"].replace(this, that)


def findings(template):
    yield from checks.check(template)
    yield from checks.check_native_rules(template, SOURCES)
    yield from checks.check_subscriptions(template, SOURCES)
    yield from checks.check_watching(template, METRICS, MANUAL)


class Checks(unittest.TestCase):
    def test_the_template_is_right(self):
        self.assertEqual(list(checks.findings(TEMPLATE)), [])

    def test_each_break_is_found(self):
        for break_it, said in BROKEN:
            with self.subTest(said):
                template = copy.deepcopy(TEMPLATE)
                break_it(template)
                found = list(findings(template))
                self.assertTrue(any(said in line for line in found), found)

    def test_a_variable_that_the_code_does_not_know_is_found(self):
        self.assertTrue(any("RETRY_JITTER" in line for line in checks.check_known("MONGODB_URI=x\n", "")))
        self.assertTrue(any("WEBHOOK_SECRET" in line for line in checks.check_known("MONGODB_URI=x\n", "")))


if __name__ == "__main__":
    unittest.main()
