package amdgpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"gpuard/internal/core/gpu"
)

// tree unpacks testdata/NAME.txtar into a folder of its own. A name that ends in @ is a symbolic link.
func tree(t testing.TB, name string) string {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, f := range archive.Files {
		write(t, root, f.Name, string(f.Data))
	}
	return root
}

// write writes one file or symbolic link below root, in place of an existing one.
func write(t testing.TB, root, name, data string) {
	t.Helper()
	link, isLink := strings.CutSuffix(name, "@")
	path := filepath.Join(root, link)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	switch {
	case err != nil:
	case isLink:
		err = os.Symlink(strings.TrimSpace(data), path)
	default:
		err = os.WriteFile(path, []byte(data), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, root, name string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
		t.Fatal(err)
	}
}

// same compares what was read with what was wanted, both as text so that a difference can be seen.
func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s:\ngot  %s\nwant %s", what, g, w)
	}
}

// show formats a reading, "-" if it is absent.
func show[T any](p *T) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprint(*p)
}

func identity(d gpu.Device) string {
	text := fmt.Sprintf("%d %s %q %s minor %s numa %s total %s clock %s %s", d.Index, d.UUID, d.Name, d.PCI,
		show(d.Minor), show(d.NUMA), show(d.MemoryTotal), show(d.ClockSMMax), d.Extra["gfx_target"])
	if d.Integrated != nil && *d.Integrated {
		text += " integrated"
	}
	return text
}

func load(d gpu.Device) string {
	return fmt.Sprintf("used %s busy %s at %s of %s margin %s, %s of %s W, %s and %s MHz", show(d.MemoryUsed), show(d.Utilization),
		show(d.Temperature), show(d.TempSlowdown), show(d.TempMargin), show(d.Power), show(d.PowerLimit), show(d.ClockSM), show(d.ClockMemory))
}

func health(d gpu.Device) string {
	return fmt.Sprintf("ecc %s %s %s pages %s", show(d.ECC), show(d.ECCCorrected), show(d.ECCUncorrected), show(d.RetiredPages))
}

func lines[T any](list []T, one func(T) string) string {
	var out strings.Builder
	for _, v := range list {
		out.WriteString("\n" + one(v))
	}
	return out.String()
}

func process(p gpu.Process) string {
	return fmt.Sprintf("%d on %s: %s %s", p.PID, p.GPU, show(p.Memory), p.Kind)
}

func itself(s string) string { return s }
