package lockelection_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestHome builds this module under the path that "make home" gives it, and resolves the imports of those below it.
func TestHome(t *testing.T) {
	dir, root := t.TempDir(), filepath.Join("..", "..")
	run := func(in, name string, args ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), name, args...)
		command.Dir = in
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	run(root, "tar", "--exclude=./build", "--exclude=./.git", "--exclude=node_modules", "-cf", filepath.Join(dir, "tar"), ".")
	run(dir, "tar", "-xf", "tar")
	run(dir, "test/lib/home", "https://git.example.org/locks/lock_election", "locks@example.org")
	for _, module := range []string{".", "leaderelection", "lockotel", "modzip", "schedulers", "examples/orm"} {
		module = filepath.Join(dir, "clients", "go", module)
		run(module, "go", "list", "-deps", "-test", "./...")
		if path := strings.TrimSpace(run(module, "go", "list", "-m")); !strings.HasPrefix(path, "git.example.org/locks/lock_election/clients/go") {
			t.Errorf("the module is %s", path)
		}
	}
	run(filepath.Join(dir, "clients", "go"), "go", "build", "./...")
	run(filepath.Join(dir, "clients", "go"), "go", "vet", "./...")
	if left := run(filepath.Join(dir, "clients", "go"), "gofmt", "-l", "."); left != "" {
		t.Errorf("not formatted: %s", left)
	}
}
