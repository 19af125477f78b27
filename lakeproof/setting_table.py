"""
The table of settings: names, kinds, defaults, bounds and meanings. `settings.py` reads values by it, and nothing else.
"""

from __future__ import annotations

from lakeproof.connection_settings import CONNECTION_SETTINGS
from lakeproof.log_settings import LOG_SETTINGS
from lakeproof.setting_kinds import Kind, LogLevel, Setting

SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="home",
        kind=Kind.PATH,
        default=".lakeproof",
        meaning="keys (each file 0600), the embedded server's data and logs (root's are in LAKEPROOF_SERVER_FOLDER), "
        "and the default warehouse; nobody else may enter it",
    ),
    Setting(
        name="server_account",
        kind=Kind.TEXT,
        default="lakeproof",
        meaning="system account that root's embedded server runs as, and nothing else may; the default one is made if "
        "it is missing",
    ),
    Setting(
        name="server_folder",
        kind=Kind.PATH,
        default="/var/lib/lakeproof",
        meaning="where root's embedded servers keep their databases, each in a folder of its own; that account must be "
        "able to enter it",
    ),
    Setting(
        name="dsn",
        kind=Kind.SECRET,
        default=None,
        meaning="connection string of the owner of your own PostgreSQL 17 or newer with Apache AGE; "
        "without it an embedded server runs in the home directory",
    ),
    Setting(
        name="origin",
        kind=Kind.ORIGIN,
        default=None,
        meaning="authority with which the name of every log begins, as in logs.example.org; fixed by the first start; "
        "without it lakeproof.invalid/<installation id>",
    ),
    Setting(
        name="schema_accepted",
        kind=Kind.TEXT,
        default=None,
        meaning="fingerprint of the database's schema, roles, grants and settings, as a refused start prints it: they "
        "are meant, and the system log records them; any other difference is still refused",
    ),
    Setting(name="host", kind=Kind.TEXT, default="127.0.0.1", meaning="address the gateway listens on"),
    Setting(
        name="port",
        kind=Kind.INTEGER,
        default=8181,
        most=65535,
        meaning="port the gateway listens on; 0 is any free one",
    ),
    Setting(
        name="warehouse",
        kind=Kind.LOCATION,
        default="<home>/warehouse",
        meaning="where the built-in catalog keeps the files of its tables; nobody else may enter a local one",
    ),
    Setting(name="cache", kind=Kind.PATH, default="~/.cache/lakeproof", meaning="what was fetched, and can be again"),
    *LOG_SETTINGS,
    Setting(
        name="policy_timeout_s",
        kind=Kind.NUMBER,
        default=1.0,
        unit="seconds",
        least=0.01,
        most=60,
        meaning="how long all policies of one commit may take, from when they begin; then it is refused as undecidable",
    ),
    Setting(
        name="policy_waiting_s",
        kind=Kind.NUMBER,
        default=5.0,
        unit="seconds",
        least=0.1,
        most=60,
        meaning="how long a commit may wait for its policies to begin; then it is refused as undecidable",
    ),
    Setting(
        name="policy_memory_mib",
        kind=Kind.INTEGER,
        default=512,
        unit="MiB",
        least=64,
        most=65_536,
        meaning="address space of a policy worker",
    ),
    Setting(
        name="policy_workers",
        kind=Kind.INTEGER,
        default=1,
        unit="processes",
        least=1,
        most=256,
        meaning="processes that evaluate policies; one more is for those that take long, one compiles, one is spare",
    ),
    Setting(
        name="body_max_bytes",
        kind=Kind.INTEGER,
        default=16 * 1024 * 1024,
        unit="bytes",
        least=1024,
        most=1024**3,
        meaning="largest body of a request; beyond it 413, without reading it all",
    ),
    *CONNECTION_SETTINGS,
    Setting(
        name="metrics_token",
        kind=Kind.SECRET,
        default=None,
        meaning="bearer token that /metrics asks for; without it only loopback may read it",
    ),
    Setting(
        name="upstreams_allowed",
        kind=Kind.HOSTS,
        default="public",
        meaning="where connections may go that tenants' catalogs (uri, s3.endpoint) and the alert webhook ask for, "
        "separated by commas: public (every address of the internet), a host, an address, a network (10.1.0.0/16), "
        "each with a port if wanted (minio.internal:9000); private and loopback addresses are refused unless they "
        "are here, link-local and metadata addresses unless each is here by itself",
    ),
    Setting(
        name="upstream_timeout_s",
        kind=Kind.NUMBER,
        default=30.0,
        unit="seconds",
        least=0.1,
        most=600,
        meaning="how long another catalog may take to answer; then the outcome of a commit is unknown",
    ),
    Setting(
        name="reconcile_after_s",
        kind=Kind.NUMBER,
        default=60.0,
        unit="seconds",
        least=0.1,
        most=3600,
        meaning="age of an open decision on another catalog from which its outcome is looked for there; "
        "more than LAKEPROOF_UPSTREAM_TIMEOUT_S",
    ),
    Setting(
        name="s3_endpoint",
        kind=Kind.TEXT,
        default=None,
        meaning="URL of S3 and SQS, if they are not Amazon's; for the warehouse and the events' queue",
    ),
    Setting(name="s3_region", kind=Kind.TEXT, default=None, meaning="region of S3 and SQS"),
    Setting(
        name="s3_access_key_id",
        kind=Kind.TEXT,
        default=None,
        meaning="access key for S3 and SQS; without it Amazon's own chain of credentials is used",
    ),
    Setting(name="s3_secret_access_key", kind=Kind.SECRET, default=None, meaning="secret of that access key"),
    Setting(
        name="s3_events_queue",
        kind=Kind.TEXT,
        default=None,
        meaning="URL of the SQS queue with ObjectCreated events of S3; without it none are read",
    ),
    Setting(
        name="polaris_webhook",
        kind=Kind.INTEGER,
        default=1,
        most=1,
        meaning="1: /v1/webhooks/polaris takes signed callbacks; 0: it answers 410",
    ),
    Setting(
        name="alert_webhook",
        kind=Kind.SECRET,
        default=None,
        meaning="URL that takes alerts as Slack's JSON; without it they are in the log alone",
    ),
    Setting(
        name="streams",
        kind=Kind.INTEGER,
        default=1,
        most=1,
        meaning="1: `lakeproof up` runs the streams; 0: run `lakeproof streams run` elsewhere",
    ),
    Setting(
        name="streams_workers",
        kind=Kind.INTEGER,
        default=2,
        unit="tasks",
        least=1,
        most=64,
        meaning="batches of different logs that a process's streams handle at a time",
    ),
    Setting(
        name="kafka_brokers",
        kind=Kind.TEXT,
        default=None,
        meaning="Kafka's bootstrap servers, separated by commas; without it no Kafka is used",
    ),
    Setting(
        name="kafka_lineage_topic",
        kind=Kind.TEXT,
        default="lakeproof.lineage",
        meaning="beginning of the topics from which OpenLineage events are taken; a dot and the tenant's id follow",
    ),
    Setting(
        name="kafka_outbox_topic",
        kind=Kind.TEXT,
        default="lakeproof.events",
        meaning="topic to which entries are published as CloudEvents",
    ),
    Setting(
        name="detect",
        kind=Kind.INTEGER,
        default=1,
        most=1,
        meaning="1: `lakeproof up` runs detection on Spark, if there is a Java 17; "
        "0: run `lakeproof detect run` elsewhere",
    ),
    Setting(
        name="detect_batch_max_bytes",
        kind=Kind.INTEGER,
        default=1024**3,
        unit="bytes",
        least=1024**2,
        meaning="data that one batch of detection plans to scan",
    ),
    Setting(
        name="spark_master",
        kind=Kind.TEXT,
        default="local[2,4]",
        meaning="Spark's master; the second number of local[N,F] is the attempts of a task",
    ),
    Setting(
        name="java_home",
        kind=Kind.PATH,
        default=None,
        meaning="a Java 17 for Spark; without it JAVA_HOME, then what is on the path, then the usual folders",
    ),
    Setting(
        name="log_level",
        kind=Kind.LEVEL,
        default="info",
        meaning="how much is logged: " + ", ".join(LogLevel),
    ),
)
