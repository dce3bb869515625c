package kmod

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/prose"
)

// DeviceNodes lists the existing device files that GPU programs open: NVIDIA's control, memory and card files, Windows'
// /dev/dxg, AMD's /dev/kfd and the render nodes of AMD's cards. The paths are without root. The error says that /dev
// cannot be listed.
func DeviceNodes(root string) ([]hostinfo.Node, error) {
	names, err := listNames(filepath.Join(root, "dev"))
	if err != nil {
		return nil, fmt.Errorf("cannot list the device files: %w", err)
	}

	paths := slices.DeleteFunc(names, func(name string) bool {
		digits, card := strings.CutPrefix(name, "nvidia")
		card = card && digits != "" && strings.Trim(digits, "0123456789") == ""
		return !card && !slices.Contains([]string{"nvidiactl", "nvidia-uvm", "dxg", "kfd"}, name)
	})

	// A machine without the folder has none.
	render, _ := listNames(filepath.Join(root, "dev/dri"))
	for _, name := range render {
		if vendor, err := readText(root, "sys/class/drm/"+name+"/device/vendor"); strings.HasPrefix(name, "renderD") && err == nil && strings.TrimSpace(vendor) == "0x1002" {
			paths = append(paths, "dri/"+name)
		}
	}

	slices.Sort(paths)
	var nodes []hostinfo.Node
	for _, path := range paths {
		if n, ok := readNode(root, "/dev/"+path); ok {
			nodes = append(nodes, n)
		}
	}

	return nodes, nil
}

func readNode(root, path string) (hostinfo.Node, bool) {
	info, err := os.Stat(filepath.Join(root, path))
	if err != nil || info.IsDir() {
		return hostinfo.Node{}, false
	}

	n := hostinfo.Node{Path: path, Mode: uint32(info.Mode().Perm())}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		n.UID, n.GID = st.Uid, st.Gid
	}

	// access(2) fails with EPERM if the device cgroup refuses (torvalds/linux fs/namei.c inode_permission). It wakes no
	// device.
	if err := unix.Access(filepath.Join(root, path), unix.R_OK|unix.W_OK); err != nil {
		n.Problem, n.Kept = err.Error(), errors.Is(err, unix.EPERM)
	}

	return n, true
}

// maxEntries is more than any machine has in /dev.
const maxEntries = 8192

func listNames(folder string) ([]string, error) {
	dir, err := os.Open(folder)
	if err != nil {
		return nil, err
	}

	defer dir.Close() //nolint:errcheck // read only
	entries, err := dir.ReadDir(maxEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}

	return entryNames(entries), nil
}

func entryNames(entries []fs.DirEntry) []string {
	return prose.Texts(entries, func(e fs.DirEntry) string { return e.Name() })
}
