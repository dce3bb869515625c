package loader

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/hostinfo"
)

// ListToolkits lists the CUDA toolkits of the machine below root, each once: the one with the first nvcc on path, the
// folders in homes (CUDA_HOME and similar, "" for none) that exist, and those in the usual places. Versions are read
// from the toolkits' files.
func ListToolkits(root, path string, homes ...string) []hostinfo.Toolkit {
	s := Search{Root: root}
	var found []hostinfo.Toolkit
	add := func(folder string) *hostinfo.Toolkit {
		folder = s.resolveFolder(folder)
		i := slices.IndexFunc(found, func(t hostinfo.Toolkit) bool { return t.Folder == folder })
		if i < 0 {
			i = len(found)
			found = append(found, hostinfo.Toolkit{Folder: folder, Version: s.toolkitVersion(folder), NVCC: fileExists(root, filepath.Join(folder, "bin/nvcc"))})
		}

		return &found[i]
	}

	for _, folder := range filepath.SplitList(path) {
		if !filepath.IsAbs(folder) {
			continue
		}
		folder = s.resolveFolder(folder)
		info, err := os.Stat(filepath.Join(root, s.resolveLinks(filepath.Join(folder, "nvcc"))))
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			t := add(filepath.Dir(filepath.Dir(s.resolveLinks(filepath.Join(folder, "nvcc")))))
			t.OnPath, t.NVCC = true, true
			break
		}
	}

	for _, home := range homes {
		if filepath.IsAbs(home) && fileExists(root, s.resolveFolder(home)) {
			t := add(home)
			t.Homes = append(t.Homes, home)
		}
	}

	usual, _ := filepath.Glob(filepath.Join(root, "usr/local/cuda*"))
	for _, folder := range append(usual, filepath.Join(root, "opt/cuda")) {
		folder = "/" + strings.TrimPrefix(strings.TrimPrefix(folder, filepath.Clean(root)), "/")
		if info, err := os.Stat(filepath.Join(root, s.resolveFolder(folder))); err == nil && info.IsDir() {
			add(folder)
		}
	}

	return slices.DeleteFunc(found, func(t hostinfo.Toolkit) bool { return !t.NVCC && t.Version == "" && t.Homes == nil })
}

// resolveFolder follows the links of a folder, part by part: /usr/local/cuda is a link, often through
// /etc/alternatives.
func (s Search) resolveFolder(folder string) string {
	at := "/"
	for part := range strings.SplitSeq(strings.Trim(filepath.Clean(folder), "/"), "/") {
		at = s.resolveLinks(filepath.Join(at, part))
	}
	return at
}

// toolkitVersion reads the version of the toolkit in a folder: from version.json since CUDA 11.1, from version.txt
// before, or else from cuda.h, which distributions and conda have. It is "" if there is none.
func (s Search) toolkitVersion(folder string) string {
	var inside struct{ CUDA struct{ Version string } }
	if data, err := s.readHead(folder, "version.json"); err == nil && json.Unmarshal(data, &inside) == nil {
		if v, ok := majorMinor(inside.CUDA.Version); ok {
			return v
		}
	}

	if data, err := s.readHead(folder, "version.txt"); err == nil {
		if v, ok := majorMinor(strings.TrimPrefix(strings.TrimSpace(string(data)), "CUDA Version ")); ok {
			return v
		}
	}

	headers := []string{"include/cuda.h", "targets/x86_64-linux/include/cuda.h", "targets/sbsa-linux/include/cuda.h"}
	if folder == "/usr/lib/nvidia-cuda-toolkit" {
		// Debian's package has its headers in /usr/include.
		headers = []string{"../../include/cuda.h"}
	}

	for _, header := range headers {
		if v, ok := s.headerVersion(filepath.Join(folder, header)); ok {
			return v
		}
	}

	return ""
}

// headerVersion finds "#define CUDA_VERSION 12040" in a header.
func (s Search) headerVersion(path string) (string, bool) {
	file, err := openRegular(filepath.Join(s.Root, path))
	if err != nil {
		return "", false
	}

	defer file.Close() //nolint:errcheck // read only
	lines := bufio.NewScanner(io.LimitReader(file, 256<<10))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 3 || words[0] != "#define" || words[1] != "CUDA_VERSION" {
			continue
		}
		n, err := strconv.Atoi(words[2])

		return fmt.Sprintf("%d.%d", n/1000, n%1000/10), err == nil && n >= 1000
	}

	return "", false
}

// majorMinor returns "12.4" of "12.4.127".
func majorMinor(version string) (string, bool) {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return "", false
	}

	for _, p := range parts[:2] {
		if _, err := strconv.ParseUint(p, 10, 16); err != nil {
			return "", false
		}
	}

	return parts[0] + "." + parts[1], true
}

// readHead returns the beginning of a file.
func (s Search) readHead(folder, name string) ([]byte, error) {
	file, err := openRegular(filepath.Join(s.Root, folder, name))
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // read only

	return io.ReadAll(io.LimitReader(file, 64<<10))
}
