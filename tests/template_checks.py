"""Checks of template.yaml that no linter makes: what the functions and the ledger rely on, and what the code says of itself.

Run by tests/run; by hand: `.tools/venv/bin/python tests/template_checks.py [FILE]`, after a build, since the command `recoup` is
asked for its metrics and sources. Exit 1 and a line for each finding. With `--functions` it prints the functions' names. tests/test_template_checks.py breaks the template in
each way that is looked for here.
"""

import json
import os
import pathlib
import re
import subprocess
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
    "EVENT_SOURCES": "{}",
}
# Those that hold a secret, and the parameters that say where it is kept.
SECRETS = {
    "MONGODB_URI": {"MongoDbSecretArn", "MongoDbAuditSecretArn"},
    "REDIS_URL": {"RedisSecretArn"},
    "WEBHOOK_SECRET": {"WebhookSecretArn"},
    "WEBHOOK_SECRET_PREVIOUS": {"WebhookSecretArn"},
    "REPLICATE_WEBHOOK_SECRET": {"WebhookSecretArn"},
    "FAL_WEBHOOK_KEYS": {"WebhookSecretArn"},
}
QUEUE_URLS = {"JOB_FAILED_QUEUE_URL": "JobFailedQueue", "JOB_SUCCEEDED_QUEUE_URL": "JobSucceededQueue"}
RETRY_SETTINGS = {name for name in CONTRACT if name.startswith("RETRY_")}
REDIS_SETTINGS = {"REDIS_URL", "REDIS_CLUSTER", "REDIS_KEY_PREFIX"}
VARIABLES_OF = {
    "job-failed": {"MONGODB_URI", "EVENT_SOURCES"} | REDIS_SETTINGS | RETRY_SETTINGS,
    "job-succeeded": {"MONGODB_URI", "EVENT_SOURCES"},
    "retry-scheduler": set(CONTRACT) - {"EVENT_SOURCES"},
    "audit": {"MONGODB_URI", "CLAIM_TIMEOUT", "SWEEP_GRACE"} | REDIS_SETTINGS,
    "webhook": {"EVENT_SOURCES"} | set(QUEUE_URLS) | {name for name, kept in SECRETS.items() if kept == {"WebhookSecretArn"}},
}
# The one service that knows no resources.
WITHOUT_RESOURCES = {"xray:PutTraceSegments", "xray:PutTelemetryRecords"}
ROOT = pathlib.Path(__file__).parent.parent

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


def secrets_of(value):
    """The parameters with the ARN of a secret that a value names."""
    return set(re.findall(r"[A-Za-z]+SecretArn", " ".join(strings(value))))


def is_reference(value, kept):
    """Whether a value is `secretsmanager:` and the ARN of one of these parameters, or left out by a condition."""
    texts = [text for text in strings(value) if "${" in text or ":" in text]
    starts = [text for text in texts if not text.startswith(("#", "AWS::"))]
    return bool(starts) and all(text.startswith("secretsmanager:${") for text in starts) and secrets_of(value) <= kept and bool(secrets_of(value))


def seconds(duration):
    number, unit = re.fullmatch(r"([0-9]+)(ms|s|m|h)", duration).groups()
    return int(number) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[unit]


def senders_of(resources, queue):
    """The rules and topics that a queue's policy lets send to it; `anybody` for a statement without a condition."""
    senders = set()
    for entry in resources.values():
        if entry["Type"] != "AWS::SQS::QueuePolicy" or {"Ref": queue} not in entry["Properties"]["Queues"]:
            continue
        for statement in entry["Properties"]["PolicyDocument"]["Statement"]:
            statement = statement["Fn::If"][1] if "Fn::If" in statement else statement
            sources = statement.get("Condition", {}).get("ArnEquals", {}).get("aws:SourceArn")
            for source in (sources if isinstance(sources, list) else [sources or {"Ref": "anybody"}]):
                source = source["Fn::If"][1] if "Fn::If" in source else source
                senders.add(source["Fn::GetAtt"][0] if "Fn::GetAtt" in source else source["Ref"])
    return senders


def check_native_rules(template, sources):
    """Each service of the table has a switch, off by default, and two rules with its words; nothing else is taken."""
    resources, parameters, conditions = template["Resources"], template["Parameters"], template["Conditions"]
    expected = {}
    for row in sources:
        if row["carrier"] == "eventbridge":
            for kind, words in (("failed", row["failure"]), ("succeeded", row["success"])):
                # Where both ends have one word, it tells nothing; both functions get it.
                expected[(row["source"], row["detail_type"], kind)] = (row["status"].removeprefix("detail."), set(words))
    found = {}
    for logical, entry in resources.items():
        if entry["Type"] != "AWS::Events::Rule":
            continue
        rule = entry["Properties"]
        pattern, target = rule["EventPattern"], rule["Targets"][0]
        if "detail" not in pattern:
            continue
        switch = conditions.get(entry.get("Condition"), {}).get("Fn::Equals", [{}])[0].get("Ref")
        if parameters.get(switch, {}).get("Default") != "false":
            yield f"rule {logical}: no parameter switches it on, or it is on by default"
        if "EventBusName" in rule:
            yield f"rule {logical}: AWS services send to the default bus only"
        if "DeadLetterConfig" not in target:
            yield f"rule {logical}: no dead-letter queue for what it cannot deliver"
        kind = target["Id"].removeprefix("job-")
        words = {field: set(values) for one in pattern["detail"].get("$or", [pattern["detail"]]) for field, values in one.items()}
        for detail_type in pattern["detail-type"]:
            (source,) = pattern["source"]
            field = expected.get((source, detail_type, kind), (None,))[0]
            found[(source, detail_type, kind)] = (field, words.get(field))
    for key in sorted(set(expected) | set(found)):
        if expected.get(key) != found.get(key):
            yield f"events {key}: the rules have {found.get(key)}, the table of sources {expected.get(key)}"


def check_subscriptions(template, sources):
    """Topics go to each queue with that function's words."""
    resources = template["Resources"]
    for row in (row for row in sources if row["carrier"] == "sns"):
        topic = {"Ref": row["source"].capitalize() + "TopicArn"}
        for queue, words in (("JobFailedQueue", row["failure"]), ("JobSucceededQueue", row["success"])):
            filters = [
                (entry["Properties"].get("FilterPolicyScope"), entry["Properties"].get("FilterPolicy", {}).get(row["status"]))
                for entry in resources.values()
                if entry["Type"] == "AWS::SNS::Subscription"
                and (entry["Properties"]["TopicArn"], entry["Properties"]["Endpoint"]) == (topic, {"Fn::GetAtt": [queue, "Arn"]})
            ]
            if filters != [("MessageBody", words)]:
                yield f"topic of {row['source']}: its subscription to {queue} has {filters}, the table of sources {words}"


def check_watching(template, metrics, manual):
    """Alarms and dashboard read metrics that the code writes, and the manual has each alarm."""
    resources = template["Resources"]
    known = {metric["name"]: metric["dimensions"] for metric in metrics}
    alarms = {name: entry["Properties"] for name, entry in resources.items() if entry["Type"] == "AWS::CloudWatch::Alarm"}
    for name, alarm in alarms.items():
        dimensions = [dimension["Name"] for dimension in alarm["Dimensions"]]
        if alarm["Namespace"] == "Recoup" and known.get(alarm["MetricName"]) != dimensions:
            yield f"{name}: the code writes no {alarm['MetricName']} by {dimensions}"
        for dimension in alarm["Dimensions"]:
            target = dimension["Value"].get("Ref") or dimension["Value"]["Fn::GetAtt"][0]
            if target not in resources:
                yield f"{name}: it watches {target}, which is not there"
        if alarm.get("AlarmActions") != [{"Ref": "AlarmTopic"}]:
            yield f"{name}: it tells nobody"
        if f"`{name}`" not in manual:
            yield f"{name}: docs/OPERATIONS.md does not say what to do"
    for name in re.findall(r"`([A-Za-z]+Alarm)`", manual):
        if name not in alarms:
            yield f"docs/OPERATIONS.md has {name}, which the template has not"
    if alarms.get("NoDrainAlarm", {}).get("TreatMissingData") != "breaching":
        yield "NoDrainAlarm: a scheduler that does not run at all would be no alarm"
    body = resources["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
    for reference in re.findall(r"\$\{([A-Za-z]+)[.}]", body):
        if reference not in resources:
            yield f"Dashboard: {reference} is not there"
    for widget in json.loads(body)["widgets"]:
        for metric in widget["properties"]["metrics"]:
            if metric[0] == "Recoup" and known.get(metric[1]) != metric[2::2]:
                yield f"Dashboard: the code writes no {metric[1]} by {metric[2::2]}"


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
        known = set(CONTRACT) | set(SECRETS) | set(QUEUE_URLS)
        for variable in sorted(set(variables) - known):
            yield f"{name}: sets {variable}, which no function reads"
        for variable in sorted((set(variables) & known) ^ VARIABLES_OF.get(name, set())):
            yield f"{name}: {variable} is {'set and not used' if variable in variables else 'not set'}"
        for variable, value in variables.items():
            if variable in SECRETS:
                if not is_reference(value, SECRETS[variable]):
                    yield f"{name}: {variable} is not a reference to the secret of {' or '.join(sorted(SECRETS[variable]))}"
            elif variable in QUEUE_URLS:
                if value != {"Ref": QUEUE_URLS[variable]}:
                    yield f"{name}: {variable} is not the URL of {QUEUE_URLS[variable]}"
            elif variable in CONTRACT:
                default = parameters.get(value.get("Ref") if isinstance(value, dict) else None, {}).get("Default")
                if str(default) != CONTRACT[variable]:
                    yield f"{name}: {variable} is not a parameter with default {CONTRACT[variable]}"

        readable = {arn for variable, value in variables.items() if variable in SECRETS for arn in secrets_of(value)}
        granted = set()
        for statement in statements(resource(function.get("Role"), "AWS::IAM::Role")):
            any_resource = "*" in strings(statement.get("Resource")) and not set(strings(statement["Action"])) <= WITHOUT_RESOURCES
            if any_resource or any("*" in action for action in strings(statement["Action"])):
                yield f"{name}: statement {statement.get('Sid')} has a wildcard"
            if "secretsmanager:GetSecretValue" in strings(statement["Action"]):
                granted |= secrets_of(statement["Resource"])
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
        feeding = {
            logical
            for logical, entry in resources.items()
            if entry["Type"] == "AWS::Events::Rule" and mapping["Queue"] in [target["Arn"] for target in entry["Properties"]["Targets"]]
        }
        senders = senders_of(resources, queue_name)
        if senders != feeding | {"RekognitionTopicArn", "TextractTopicArn"}:
            yield f"{name}: its queue takes events from {sorted(senders)}, and is fed by {sorted(feeding)} and the topics"

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


def asked(command):
    """What the command of this build answers to `recoup COMMAND --json`, a document a line."""
    binary = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug" / "recoup"
    run = subprocess.run([binary, "--json", command], capture_output=True, check=True, env={})
    return [json.loads(line) for line in run.stdout.splitlines()]


def check_known(env_file, manual):
    """The variables above are those that the code reads: a unit test holds the sample to it, and a test the manual."""
    sampled = {line.split("=")[0] for line in env_file.splitlines() if line and not line.startswith("#")}
    described = set(re.findall(r"`([A-Z_]+)`", manual))
    for variable in sorted(set(CONTRACT) - sampled):
        yield f"{variable} is none of the functions' variables, see examples/functions.env"
    for variable in sorted((set(SECRETS) | set(QUEUE_URLS)) - sampled - described):
        yield f"{variable} is none of webhook's variables, see docs/WEBHOOKS.md"


def findings(template):
    yield from check_known((ROOT / "examples/functions.env").read_text(), (ROOT / "docs/WEBHOOKS.md").read_text())
    yield from check(template)
    sources = asked("sources")
    yield from check_native_rules(template, sources)
    yield from check_subscriptions(template, sources)
    yield from check_watching(template, asked("metrics"), (ROOT / "docs/OPERATIONS.md").read_text())


def main():
    if sys.argv[1:] == ["--functions"]:
        template = yaml.load((ROOT / "template.yaml").read_text(), Loader)
        print(*(name for name, entry in template["Resources"].items() if entry["Type"] == "AWS::Serverless::Function"))
        return
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "template.yaml"
    found = list(findings(yaml.load(path.read_text(), Loader)))
    for finding in found:
        print(f"{path.name}: {finding}", file=sys.stderr)
    if found:
        sys.exit(1)
    print(f"{path.name}: what the functions rely on holds")


if __name__ == "__main__":
    main()
