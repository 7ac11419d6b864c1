"""Containers and WSL."""

from __future__ import annotations

from rows import every_row


@every_row(
    ("name", "content", "kind"),
    [
        (".dockerenv", "", "docker"),
        ("run/.containerenv", 'engine="podman-4.3.1"\n', "podman"),
        ("run/secrets/kubernetes.io/serviceaccount/namespace", "default", "kubernetes"),
        ("run/systemd/container", "systemd-nspawn\n", "systemd-nspawn"),
        ("run/systemd/container", "lxc\n", "lxc"),
        ("run/systemd/container", "wsl\n", "none"),
        ("run/systemd/container", "rubbish\n", "none"),
        ("proc/self/cgroup", "12:memory:/docker/0123abcd\n", "docker"),
        ("proc/self/cgroup", "0::/system.slice/docker-0123abcd.scope\n", "docker"),
        ("proc/1/cgroup", "0::/lxc.payload.box/init.scope\n", "lxc"),
        ("proc/self/cgroup", "0::/kubepods.slice/kubepods-burstable.slice\n", "kubernetes"),
        ("proc/self/cgroup", "0::/machine.slice/libpod-0123abcd.scope/container\n", "podman"),
        ("proc/self/cgroup", "0::/user.slice/user-1000.slice\n", "none"),
    ],
)
def test_kinds(build, name, content, kind):
    build.file(name, content)
    assert build.detect().value("container.kind") == kind


def test_kubernetes_wins_over_the_engine_below_it(build):
    build.file(".dockerenv", "")
    assert build.detect(KUBERNETES_SERVICE_HOST="10.0.0.1").value("container.kind") == "kubernetes"
    assert "10.0.0.1" not in str(build.detect(KUBERNETES_SERVICE_HOST="10.0.0.1").facts)


def test_variable_of_systemd(build):
    assert build.detect(container="podman").value("container.kind") == "podman"
    assert build.detect(container="what a box").value("container.kind") == "none"


@every_row(
    ("release", "wsl"),
    [
        ("5.15.167.4-microsoft-standard-WSL2", "WSL2"),
        ("4.4.0-19041-Microsoft", "WSL1"),
        ("6.1.0-custom-microsoft-kernel", "WSL2"),
        ("6.2.0-39-generic", "no"),
    ],
)
def test_wsl(build, release, wsl):
    build.file("proc/sys/kernel/osrelease", f"{release}\n")
    assert build.detect().value("container.wsl") == wsl


def test_wsl_without_the_door_to_the_gpu(build):
    build.file("proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n")
    assert "/dev/dxg is missing" in build.detect().facts["container.wsl"].source
    build.file("dev/dxg", "")
    assert "/dev/dxg exists" in build.detect().facts["container.wsl"].source


def test_the_way_to_the_gpu_in_wsl(build):
    build.file("proc/sys/kernel/osrelease", "6.18.33.2-microsoft-standard-WSL2\n")
    build.file("dev/dxg", "")
    build.file("usr/lib/wsl/lib/libdxcore.so", "")
    build.file("opt/rocm-7.2.1/lib/librocdxg.so", "")
    # As an editor of Windows leaves it.
    build.file("opt/rocm-7.2.1/share/rocdxg/dids.conf", "# mine\r\n0x73FF,10,3,2\r\n29650,10,1,0 \r\n")
    machine = build.detect()
    assert machine.value("wsl.dxg") is True
    assert machine.value("wsl.dxcore") is True
    assert machine.value("wsl.librocdxg") == ["/opt/rocm-7.2.1/lib/librocdxg.so"]
    assert machine.value("wsl.dids") == {"0x73ff": "gfx1032", "0x73d2": "gfx1010"}
    assert {"gfx1032", "gfx1100", "gfx1201"} <= set(machine.value("wsl.takes"))
    assert "gfx1030" not in machine.value("wsl.takes")


def test_a_wsl_without_the_bridge(build):
    build.file("proc/sys/kernel/osrelease", "6.18.33.2-microsoft-standard-WSL2\n")
    machine = build.detect()
    assert machine.value("wsl.dxg") is False
    assert machine.value("wsl.librocdxg") is None
    assert machine.value("wsl.takes") is None


def test_linux_itself_has_no_facts_of_wsl(build):
    build.file("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
    assert not [name for name in build.detect().facts if name.startswith("wsl.")]
