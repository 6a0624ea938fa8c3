// Command modzip writes Go modules to a directory for GOPROXY=file://, with the same bytes in each run:
//
//	modzip OUT VERSION DIRECTORY...
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func write(out, version, dir string) error {
	gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	m := module.Version{Path: modfile.ModulePath(gomod), Version: version}
	var archive bytes.Buffer
	if err := zip.CreateFromDir(&archive, m, dir); err != nil {
		return err
	}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	base := filepath.Join(out, escaped, "@v")
	if err := os.MkdirAll(base, 0o755); err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"list":            []byte(version + "\n"),
		version + ".info": fmt.Appendf(nil, "{\"Version\":%q}\n", version),
		version + ".mod":  gomod,
		version + ".zip":  archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(base, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if len(os.Args) < 4 {
		log.Fatal("usage: modzip OUT VERSION DIRECTORY...")
	}
	for _, dir := range os.Args[3:] {
		if err := write(os.Args[1], os.Args[2], dir); err != nil {
			log.Fatal(err)
		}
	}
}
