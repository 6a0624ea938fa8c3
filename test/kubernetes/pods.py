"""Runs the pods of examples/kubernetes without Kubernetes: a namespace of the network for each pod, and in it a process 1
with mounts of its own for each container.

What a Dockerfile copies to /usr/local/bin and /opt is there, as is the virtual environment that its own command has made;
what a manifest mounts under /run is there, with the Secret of database.yaml, whose server is that of the tests.
"""

import contextlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import tempfile

import psycopg
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "examples/kubernetes"
NAMESPACES = ["unshare", "--user", "--map-root-user", "--net", "--kill-child", "--fork"]
# Before the entry point, in its namespaces and as its process 1.  The scratch is $1.
MOUNTS = """
set -e
for place in opt run usr/local/bin; do
	mount -t tmpfs none /$place
	cp -a "$1/$place/." /$place
done
shift
exec "$@"
"""


def documents(path):
    return list(yaml.safe_load_all((KUBERNETES / path).read_text(encoding="utf-8")))


def pod_specs():
    """The pod of each workload, by its name."""
    specs = {}
    for path in sorted(KUBERNETES.glob("*/*.yaml")):
        for document in documents(path):
            spec = document["spec"]
            if document["kind"] == "CronJob":
                spec = spec["jobTemplate"]["spec"]
            if "template" in spec:
                specs[document["metadata"]["name"]] = spec["template"]["spec"]
    return specs


def read_images():
    """By the name that "docker build -t" gives it on top of its Dockerfile: entry point, and what is copied whereto."""
    images = {}
    for path in sorted(KUBERNETES.glob("*/Dockerfile")):
        text = path.read_text(encoding="utf-8")
        stages, stage = {}, None
        for line in re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.M)).splitlines():
            word, _, rest = line.partition(" ")
            if word == "FROM":
                stage = {"from": rest.split()[0], "copy": [], "run": [], "entrypoint": None, "user": None}
                stages[rest.split()[2] if " AS " in rest else None] = stage
            elif word == "COPY":
                stage["copy"].append(tuple(rest.split()))
            elif word == "RUN":
                stage["run"].append(rest)
            elif word in ("ENTRYPOINT", "USER"):
                stage[word.lower()] = json.loads(rest)
            elif word:
                raise ValueError(f"{path}: {line}")
        for build in re.findall(r"^#   docker build (.*)$", text, re.M):
            options = shlex.split(build)
            target = options[options.index("--target") + 1] if "--target" in options else None
            assert ROOT / options[options.index("-f") + 1] == path and options[-1] == "."
            images[options[options.index("-t") + 1]] = stages[target]
    return images


def service_file(directory):
    """The Secret's, but for where the server is and who asks: a socket is to be had from any namespace of the network."""
    (secret,) = documents("database.yaml")
    (text,) = secret["stringData"].values()
    with connect() as db:
        (host,) = db.execute("SHOW unix_socket_directories").fetchone()
    mine = {"host": host, "port": os.environ["PGPORT"], "dbname": os.environ["PGDATABASE"],
            "user": os.environ["PGUSER"]}
    lines = [line for line in text.splitlines() if line.partition("=")[0] not in [*mine, "password"]]
    (file,) = secret["stringData"]
    directory.mkdir(parents=True)
    (directory / file).write_text("\n".join(lines + [f"{key}={value}" for key, value in mine.items()]) + "\n")


def environment(spec, pod):
    sources = {"metadata.name": pod}
    return {entry["name"]: entry["value"] if "value" in entry
            else sources[entry["valueFrom"]["fieldRef"]["fieldPath"]] for entry in spec.get("env", [])}


def children(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has ended
            found += map(int, task.read_text().split())
    return found


class Container:
    """A container of a pod."""

    def __init__(self, pod, spec, image, ttl):
        self.pod, self.spec = pod, spec
        scratch = pod.scratch / spec["name"]
        self.fill(scratch, image)
        for mount in spec.get("volumeMounts", []):
            target = scratch / mount["mountPath"].lstrip("/")
            volume = pod.volumes[mount["name"]]
            if "secret" in volume:
                service_file(target)
            else:
                assert volume == {"name": mount["name"], "emptyDir": {}}
                target.mkdir(parents=True)
        self.env = environment(spec, pod.name)
        if "TTL" in self.env:
            self.env["TTL"] = str(ttl)
        words = [re.sub(r"\$\((\w+)\)", lambda m: self.env[m[1]], word) for word in spec.get("args", [])]
        if "--ttl" in words:
            words[words.index("--ttl") + 1] = f"{ttl}s"
        self.log = open(pod.scratch / f"{spec['name']}.log", "ab")
        self.process = self.start(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", MOUNTS, "sh", scratch,
             *image["entrypoint"], *words], stdout=self.log, stderr=self.log)

    def fill(self, scratch, image):
        """What the image has under /opt and /usr/local/bin."""
        for place in ("opt", "run", "usr/local/bin"):
            (scratch / place).mkdir(parents=True)
        for source, target in image["copy"]:
            if not source.startswith("build/"):
                (scratch / target.lstrip("/")).write_bytes((ROOT / source).read_bytes())
                (scratch / target.lstrip("/")).chmod((ROOT / source).stat().st_mode)
        for directory in image.get("made", []):
            (scratch / "opt" / directory.name).symlink_to(directory)
        for program in (ROOT / "build/lockctl/lockctl", pathlib.Path(os.environ["LE_BIN"]) / "psql"):
            (scratch / "usr/local/bin" / program.name).symlink_to(program)

    def start(self, command, **options):
        """In the pod's network, with the container's variables."""
        env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **self.env}
        return subprocess.Popen(["nsenter", "-t", str(self.pod.holder.pid), "-U", "-n", "--preserve-credentials",
                                 *map(str, command)], env=env, stdin=subprocess.DEVNULL, **options)

    def first(self):
        """Process 1, as seen from here; None: there is none (yet)."""
        return next(iter(children(self.process.pid)), None)

    def processes(self):
        """All of the container."""
        found, new = [], [self.first()]
        while new:
            found += new
            new = [child for pid in new for child in children(pid)]
        return found

    def has(self, file):
        first = self.first()
        return first is not None and os.path.exists(f"/proc/{first}/root{file}")

    def signal(self, number):
        os.kill(self.first(), number)

    def probe(self):
        """The exit code of the liveness probe, which is a command."""
        command = self.spec["livenessProbe"]["exec"]["command"]
        pid = str(self.first())
        return self.start(["nsenter", "-t", pid, "-m", "-p", *command]).wait(60)

    def said(self):
        return pathlib.Path(self.log.name).read_text(encoding="utf-8", errors="replace")


class Pod:
    """A replica: begin() starts its containers, as Kubernetes does; end() is for the tests alone."""

    def __init__(self, name, spec, images, ttl):
        self.name, self.spec, self.images, self.ttl = name, spec, images, ttl
        self.volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
        self.directory = tempfile.TemporaryDirectory(prefix="pod-")
        self.scratch = pathlib.Path(self.directory.name)
        self.holder = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep infinity"],
            stdout=subprocess.PIPE)
        assert self.holder.stdout.readline() == b"up\n"
        specs = [*spec.get("initContainers", []), *spec["containers"]]
        self.containers = {one["name"]: Container(self, one, images[one["image"]], ttl) for one in specs}

    @property
    def main(self):
        """The container that is not a sidecar."""
        return self.containers[self.spec["containers"][0]["name"]]

    def terminate(self, seconds):
        """What kubelet does: SIGTERM to the containers, and to sidecars when those have ended.  The exit codes."""
        codes = []
        for specs in (self.spec["containers"], self.spec.get("initContainers", [])):
            ending = [self.containers[spec["name"]] for spec in specs]
            for container in ending:
                container.signal(signal.SIGTERM)
            codes += [container.process.wait(seconds) for container in ending]
        return codes

    def kill(self):
        """Its node is gone."""
        for container in self.containers.values():
            container.signal(signal.SIGKILL)
        for container in self.containers.values():
            container.process.wait()

    def pause(self, number):
        """SIGSTOP or SIGCONT for all of it."""
        for container in self.containers.values():
            for pid in container.processes():
                with contextlib.suppress(ProcessLookupError):  # it ends by itself, or lockctl, which goes on first, ends it
                    os.kill(pid, number)

    def http(self, port, path="/"):
        """The status of an answer, and its body; 0: there is none."""
        program = ("import sys, urllib.request, urllib.error\n"
                   "try: a = urllib.request.urlopen(sys.argv[1], timeout=10); print(a.status, a.read().decode())\n"
                   "except urllib.error.HTTPError as e: print(e.code, e.read().decode())\n"
                   "except OSError: print(0)")
        asked = self.main.start(["/usr/bin/python3", "-c", program, f"http://127.0.0.1:{port}{path}"],
                                stdout=subprocess.PIPE)
        status, _, body = asked.communicate(timeout=60)[0].decode().partition(" ")
        return int(status), body

    def end(self):
        for container in self.containers.values():
            container.process.kill()  # and with it its process 1
            container.process.wait()
            container.log.close()
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()
        self.directory.cleanup()


def connect():
    return psycopg.connect(autocommit=True)
