package kmod

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// isModuleBuilt reports whether NVIDIA's module is in the running kernel's folder of modules. It is nil if that folder
// cannot be read, as in containers and on distributions that keep it elsewhere.
func isModuleBuilt(root, kernel string) *bool {
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

// isModule reports whether a file is the driver of the cards: nvidia.ko, or in Debian's packages nvidia-current.ko,
// nvidia-tesla-535.ko or nvidia-legacy-390xx.ko, which have an alias of the usual name. The kernel's own
// nvidia-wmi-ec-backlight.ko is another driver, and nvidia-drm.ko and similar are additional modules.
func isModule(file string) bool {
	name, _, found := strings.Cut(file, ".ko")
	debian := slices.ContainsFunc([]string{"nvidia-current", "nvidia-tesla", "nvidia-legacy"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	beside := slices.ContainsFunc([]string{"-drm", "-uvm", "-modeset", "-peermem"}, func(suffix string) bool { return strings.HasSuffix(name, suffix) })

	return found && (name == "nvidia" || debian && !beside)
}

// isSecureBoot reads the firmware's variable (UEFI specification, chapter "Globally Defined Variables"). The file has
// four bytes of attributes before the value (the kernel's Documentation/filesystems/efivarfs.rst).
func isSecureBoot(root string) bool {
	value, err := readText(root, "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c")
	return err == nil && len(value) == 5 && value[4] == 1
}
