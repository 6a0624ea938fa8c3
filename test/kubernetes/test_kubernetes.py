"""The pods of examples/kubernetes: three replicas of each way, as processes 1 of their own; and their manifests."""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

import kubernetes_validate
import pytest
from pods import KUBERNETES, ROOT, Pod, connect, documents, pod_specs, read_images

# Seconds: where nothing is to be lost, also on a busy machine; and where a test waits for the end of it.
LONG, SHORT = 30, 5
WAYS = ["pool-child", "pool-sidecar", "pool-library"]
# A sidecar is stable from this version on, though it was there before.
OLDEST = "1.33"
UNITS = {"s": 1, "min": 60, "h": 3600}


def until(condition, seconds=60):
    """What the condition is, when it is anything."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """With the virtual environment that the last Dockerfile makes, by its own command."""
    images = read_images()
    work = tmp_path_factory.mktemp("image")
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", work, ROOT / "clients/python"]
    subprocess.run(build, check=True, capture_output=True)
    library = images["pool-library"]
    ((source, target),) = [copy for copy in library["copy"] if copy[0].startswith("build/")]
    assert pathlib.Path(source).parent == pathlib.Path("build/clients") and target == "/tmp/"
    (wheel,) = work.glob(pathlib.Path(source).name)
    (command,) = [run for run in library["run"] if "pip install" in run]
    command = command.replace("/tmp/", f"{work}/").replace("/opt/", f"{work}/")
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    library["made"] = [work / "pool"]
    for path in [work, *work.parents]:  # root of a namespace is not the one who owns these
        if path.owner() == work.owner():
            path.chmod(0o755)
    return images


@pytest.fixture
def database():
    """One of its own, with the table of examples/setup.sql."""
    name = f"kubernetes_{os.getpid()}_{time.monotonic_ns()}"
    before = os.environ.get("PGDATABASE")
    run(f"CREATE DATABASE {name}")
    os.environ["PGDATABASE"] = name
    run("CREATE EXTENSION lock_election")
    run((ROOT / "examples/setup.sql").read_text())
    yield name
    os.environ["PGDATABASE"] = before
    run(f"DROP DATABASE {name} WITH (FORCE)")


def run(query, *arguments):
    """By a connection of its own, because the server may have been away."""
    with connect() as db:
        return db.execute(query, arguments or None)


def ask(query, *arguments):
    """The first column of the first row; None: there is no row."""
    row = run(query, *arguments).fetchone()
    return row and row[0]


class Replicas:
    """The pods of a Deployment."""

    def __init__(self, name, images, ttl=LONG):
        self.name, self.images, self.ttl = name, images, ttl
        self.spec = pod_specs()[name]
        self.pods = {}
        self.number = 0

    def begin(self):
        for document in documents(f"{self.name.partition('-')[2]}/deployment.yaml"):
            if document["kind"] == "Deployment":
                for _ in range(document["spec"]["replicas"]):
                    self.add()
        until(lambda: ask("SELECT count(*) FROM lock_election.waiters") == len(self.pods) - 1)
        if "initContainers" in self.spec:  # before the app has a handler for SIGTERM, process 1 ignores that
            until(lambda: all(pod.main.has("/run/pool/alive") for pod in self.pods.values()))

    def add(self):
        self.number += 1
        name = f"{self.name}-{self.number}"
        self.pods[name] = Pod(name, self.spec, self.images, self.ttl)

    def leader(self, but=None):
        """The pod that leads and works, in another term than that."""
        def works():
            term, worker, leading = run(
                "SELECT w.term, w.worker, l.term FROM work w, current_leader('pool') l").fetchone() or [None] * 3
            return term is not None and term == leading and term != but and (self.pods[worker], term)
        return until(works)

    def how(self, term):
        """How a term has ended."""
        return until(lambda: ask("SELECT how FROM election_history('pool') WHERE term = %s"
                                          " ORDER BY change DESC LIMIT 1", term))

    def works_on(self):
        done = ask("SELECT done FROM work")
        until(lambda: ask("SELECT done FROM work") > done + 2)

    def end(self):
        for name, pod in self.pods.items():
            for container in pod.containers.values():
                print(f"--- {name} {container.spec['name']}\n{container.said()}")
            pod.end()


def expires(test):
    """A test in which terms end by their TTL."""
    test.ttl = SHORT
    return test


@pytest.fixture(params=WAYS)
def replicas(request, database, images):
    replicas = Replicas(request.param, images, getattr(request.function, "ttl", LONG))
    try:
        replicas.begin()
        yield replicas
    finally:
        replicas.end()


def test_a_pod_that_is_terminated(replicas):
    """It ends before its grace is over and in order, and the next one leads; so does each of them, to the last."""
    seconds = replicas.spec["terminationGracePeriodSeconds"]
    term = None
    for _ in range(3):
        pod, term = replicas.leader(but=term)
        began = time.monotonic()
        codes = pod.terminate(seconds)
        assert time.monotonic() - began < seconds
        assert replicas.how(term) == "resigned", pod.main.said()
        assert all(code in (0, 143) for code in codes), codes
        replicas.pods.pop(pod.name).end()
    until(lambda: ask("SELECT count(*) FROM lock_election.leases") == 0)
    assert ask("SELECT count(*) FROM lock_election.elections") == 0


def test_a_waiting_pod_that_is_terminated(replicas):
    """It leaves no place in the queue."""
    leader, term = replicas.leader()
    for pod in [pod for pod in replicas.pods.values() if pod is not leader]:
        pod.terminate(replicas.spec["terminationGracePeriodSeconds"])
    until(lambda: ask("SELECT count(*) FROM lock_election.waiters") == 0)
    assert replicas.leader() == (leader, term)


@expires
def test_a_node_that_is_lost(replicas):
    """The term ends by its TTL, and the next one leads; a new pod queues up."""
    pod, term = replicas.leader()
    pod.kill()
    replicas.leader(but=term)
    assert replicas.how(term) == "expired"
    replicas.add()
    until(lambda: ask("SELECT count(*) FROM lock_election.waiters") == 2)


@expires
def test_a_pod_that_is_paused(replicas):
    """Another one leads; when the first goes on, nothing of it is written, and it stands for election again."""
    run("CREATE TABLE audit (term bigint)")
    run("CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN"
               " INSERT INTO audit VALUES (NEW.term); RETURN NULL; END$$")
    run("CREATE TRIGGER audit AFTER UPDATE ON work FOR EACH ROW EXECUTE FUNCTION audit()")
    pod, term = replicas.leader()
    pod.pause(signal.SIGSTOP)
    _, second = replicas.leader(but=term)
    pod.pause(signal.SIGCONT)
    late = ask("SELECT count(*) FROM audit WHERE term = %s", term)

    def stands_again():
        if pod.main.process.poll() is not None:  # a child of lockctl is ended, and lockctl with it: 4
            return True
        return ask("SELECT count(*) FROM lock_election.waiters") == 2
    until(stands_again)
    if pod.main.process.poll() is not None:
        assert pod.main.process.returncode == 4, pod.main.said()
    replicas.works_on()
    assert ask("SELECT count(*) FROM audit WHERE term = %s", term) == late
    assert replicas.leader()[1] >= second


def test_connections_that_break(replicas):
    """The leader goes on in the same term, and nobody restarts."""
    pod, term = replicas.leader()
    ask("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                     " WHERE datname = current_database() AND pid <> pg_backend_pid()")
    replicas.works_on()
    assert replicas.leader() == (pod, term)
    until(lambda: ask("SELECT count(*) FROM lock_election.waiters") == 2)
    for pod in replicas.pods.values():
        assert [container.process.poll() for container in pod.containers.values()] == [None] * len(pod.containers)


@expires
def test_a_server_that_is_away(replicas):
    """Past the TTL the leader has lost.  Those that have waited are still there, and one of them leads in the end."""
    pod, term = replicas.leader()
    data = ask("SHOW data_directory")
    subprocess.run(["pg_ctl", "-D", data, "-m", "immediate", "-s", "stop"], check=True)
    try:
        time.sleep(SHORT)
        if "--" in pod.main.spec.get("args", []):  # a child of lockctl is ended, and lockctl with it
            assert pod.main.process.wait(60) == 4
            replicas.pods.pop(pod.name).end()
        for pod in replicas.pods.values():
            assert [container.process.poll() for container in pod.containers.values()] == [None] * len(pod.containers)
    finally:
        subprocess.run(["pg_ctl", "-D", data, "-l", f"{data}/server.log", "-s", "-w", "start"], check=True)
    assert replicas.leader(but=term)
    assert replicas.how(term) in ("expired", "revoked")  # or given up with its lease by a session that begins anew


def test_liveness(replicas):
    """All are alive, whether they lead or wait.  One whose step hangs is not: the probe compares it with a minute."""
    leader, _ = replicas.leader()
    for pod in replicas.pods.values():
        probe = pod.main.spec["livenessProbe"]
        if "httpGet" in probe:
            assert until(lambda: pod.http(probe["httpGet"]["port"], probe["httpGet"]["path"])[0]) == 200
            assert pod.http(probe["httpGet"]["port"])[0] == 200
            continue
        assert pod.main.probe() == 0, pod.name
        if pod is leader:
            (file,) = set(re.findall(r"/run/\S+", " ".join(probe["exec"]["command"])))
            pod.pause(signal.SIGSTOP)  # so that it does not touch the file again
            pod.main.start(["touch", "-d", "2 minutes ago", f"/proc/{pod.main.first()}/root{file}"]).wait()
            assert pod.main.probe() != 0


def test_the_endpoint_of_a_sidecar(database, images):
    """The pod that leads answers 200 and the term, the others 503."""
    replicas = Replicas("pool-sidecar", images)
    try:
        replicas.begin()
        leader, term = replicas.leader()
        answers = {name: until(lambda pod=pod: pod.http(4040)) for name, pod in replicas.pods.items()}
        assert {name: status for name, (status, _) in answers.items()} == {
            name: 200 if name == leader.name else 503 for name in replicas.pods}
        assert f'"term": {term}' in answers[leader.name][1]
    finally:
        replicas.end()


def test_the_cron_job(database, images):
    """Of three pods one makes the report, and the others end well."""
    run("CREATE TABLE report (made_at timestamptz DEFAULT now())")
    run("CREATE FUNCTION make_report() RETURNS void LANGUAGE sql AS 'INSERT INTO report DEFAULT VALUES'")
    pods = [Pod(f"nightly-{i}", pod_specs()["nightly"], images, LONG) for i in range(3)]
    try:
        assert [pod.main.process.wait(60) for pod in pods] == [0] * 3
        assert ask("SELECT count(*) FROM report") == 1
    finally:
        for pod in pods:
            print(pod.main.said())
            pod.end()


# --- what is written in the files ---


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
def test_manifests(version):
    """They are what Kubernetes' own schemas ask for; and so would a wrong one be noticed."""
    paths = [path.relative_to(KUBERNETES) for path in sorted(KUBERNETES.glob("**/*.yaml"))]
    assert len(paths) == 5
    for path in paths:
        for document in documents(path):
            kubernetes_validate.validate(document, version, strict=True)
    (wrong,) = documents("child/cronjob.yaml")
    wrong["spec"]["jobTemplate"]["spec"]["backofLimit"] = 0
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(\w*)", text).groups()
    return int(number) * UNITS[unit or "s"]


@pytest.mark.parametrize("name", [*WAYS, "nightly"])
def test_the_grace_is_longer_than_the_ttl(name):
    """Images are those of the Dockerfiles, and the Secret is mounted where the variables look for it."""
    spec, images = pod_specs()[name], read_images()
    (secret,) = documents("database.yaml")
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        words = container.get("args", [])
        env = {entry["name"]: entry.get("value") for entry in container["env"]}
        ttl = seconds(words[words.index("--ttl") + 1]) if "--ttl" in words else int(env.get("TTL", 0))
        assert spec["terminationGracePeriodSeconds"] > ttl
        assert images[container["image"]]["entrypoint"]
        directory, file = os.path.split(env["PGSERVICEFILE"])
        assert directory in [mount["mountPath"] for mount in container["volumeMounts"]]
        assert f"[{env['PGSERVICE']}]" in secret["stringData"][file]
        assert container["securityContext"]["runAsNonRoot"] and images[container["image"]]["user"] > 0


def test_the_images():
    """What a Dockerfile copies is there, or is built where it says; the packages are Debian's or those of "make deb"."""
    control = (ROOT / "debian/control.in").read_text()
    for name, image in read_images().items():
        assert re.fullmatch(r"debian:\w+-slim", image["from"]), name
        for source, _ in image["copy"]:
            built = re.fullmatch(r"build/deb/(\w+)_\*\.deb", source)
            if built:
                assert f"\nPackage: {built[1]}\n" in control
            elif not source.startswith("build/clients/"):
                assert (ROOT / source).is_file(), source
        for command in image["run"]:
            for packages in re.findall(r"apt-get install ([^&]*)", command):
                for package in [word for word in shlex.split(packages) if not re.match(r"-|/tmp/", word)]:
                    found = subprocess.run(["apt-cache", "show", package], capture_output=True, check=False)
                    assert found.returncode == 0, package
