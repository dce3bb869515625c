package kmod

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// built reports whether the running kernel has NVIDIA's module in its folder; nil where that folder cannot be read, as in
// containers and where a distribution keeps it elsewhere.
func built(root, kernel string) *bool {
	if kernel == "" || strings.Contains(kernel, "/") {
		return nil
	}
	file, err := os.Open(filepath.Join(root, "lib/modules", kernel, "modules.dep"))
	if err != nil {
		return nil
	}
	defer file.Close() //nolint:errcheck // read only
	const most = 16 << 20
	lines := bufio.NewScanner(io.LimitReader(file, most))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		path, _, found := strings.Cut(lines.Text(), ":")
		if found && isModule(filepath.Base(path)) {
			return new(true)
		}
	}
	if lines.Err() != nil {
		return nil
	}
	return new(false)
}

// isModule reports whether a file is the module that drives the cards: nvidia.ko, and of Debian's packages nvidia-current.ko,
// nvidia-tesla-535.ko, nvidia-legacy-390xx.ko, which an alias gives the usual name. The kernel's own nvidia-wmi-ec-backlight.ko
// is something else, and nvidia-drm.ko and its like come beside it.
func isModule(file string) bool {
	name, _, found := strings.Cut(file, ".ko")
	debian := slices.ContainsFunc([]string{"nvidia-current", "nvidia-tesla", "nvidia-legacy"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	beside := slices.ContainsFunc([]string{"-drm", "-uvm", "-modeset", "-peermem"}, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
	return found && (name == "nvidia" || debian && !beside)
}

// secureBoot reads the firmware's variable (UEFI specification, chapter "Globally Defined Variables"): four bytes of attributes
// before its value, as the kernel's Documentation/filesystems/efivarfs.rst has it.
func secureBoot(root string) bool {
	value, err := text(root, "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c")
	return err == nil && len(value) == 5 && value[4] == 1
}
