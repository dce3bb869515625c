// Package pydist reads what Python's installers leave behind: the names of metadata folders and of conda's records,
// pyvenv.cfg, and PyTorch's version.py. It takes text and runs nothing.
package pydist

import (
	"strings"

	"gpuard/internal/core/hostinfo"
)

// Normalise writes a package's name as PyPI compares it: lower case, and one "-" for each run of "-", "_" and ".".
// Source: packaging.python.org/en/latest/specifications/name-normalization.
func Normalise(name string) string {
	var b strings.Builder
	gap := false
	for _, r := range strings.ToLower(name) {
		if r == '-' || r == '_' || r == '.' {
			gap = true
			continue
		}
		if gap && b.Len() > 0 {
			b.WriteByte('-')
		}
		gap = false
		b.WriteRune(r)
	}

	return b.String()
}

// ParseFolderName reads the name of a metadata folder in a site-packages folder: "torch-2.9.0+cu128.dist-info", or the older
// "PyJWT-2.6.0-py3.11.egg-info". ok is false for anything else; pip's leftovers begin with "~" and are no packages.
// Source: packaging.python.org/en/latest/specifications/recording-installed-packages.
func ParseFolderName(entry string) (name, version string, ok bool) {
	stem, dist := strings.CutSuffix(entry, ".dist-info")
	if !dist {
		stem, ok = strings.CutSuffix(entry, ".egg-info")
		if !ok {
			return "", "", false
		}
		if i := strings.LastIndex(stem, "-py"); i > 0 && strings.Trim(stem[i+3:], "0123456789.") == "" {
			stem = stem[:i]
		}
	}

	i := strings.LastIndexByte(stem, '-')
	if i < 0 && !dist {
		// "name.egg-info" of a package under development says no version.
		i, stem = len(stem), stem+"-"
	}

	if i <= 0 || strings.HasPrefix(stem, "~") || dist && i == len(stem)-1 {
		return "", "", false
	}

	name, version = Normalise(stem[:i]), stem[i+1:]

	return name, version, name != "" && strings.Trim(version, versionLetters) == ""
}

// versionLetters are the characters of package versions (PEP 440); "_" replaces those that a file name cannot have.
const versionLetters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.+!_"

// ParseCondaRecord reads the name of a record in conda-meta: "pytorch-2.5.1-py3.12_cuda12.4_cudnn9.1.0_0.json" is name, version
// and build. Source: docs.conda.io/projects/conda-build, package naming conventions.
func ParseCondaRecord(file string) (name, version, build string, ok bool) {
	stem, isRecord := strings.CutSuffix(file, ".json")
	if !isRecord {
		return "", "", "", false
	}

	rest, build, a := cutLast(stem)
	name, version, b := cutLast(rest)
	if !a || !b || name == "" || version == "" || build == "" {
		return "", "", "", false
	}

	return Normalise(name), version, build, true
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '-')
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+1:], true
}

// Config is what pyvenv.cfg says of a virtual environment.
type Config struct {
	// Folder of the Python it was made with: "/usr/bin".
	Home string
	// "3.11.7"; "" when it does not say.
	Version string
	// Packages of that Python count too.
	System bool
}

// ParseVenv reads pyvenv.cfg as Python's site module does: lines of "key = value", keys in any case, others ignored.
// Source: python/cpython Lib/site.py, venv; uv writes version_info where venv writes version.
func ParseVenv(text []byte) Config {
	var c Config
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.ToLower(strings.TrimSpace(key)) {
		case "home":
			c.Home = value
		case "include-system-site-packages":
			c.System = strings.EqualFold(value, "true")
		case "version", "version_info":
			if c.Version == "" {
				c.Version = value
			}
		}
	}
	return c
}

// ParseTorch reads torch/version.py: assignments of a string or None, with or without a type. ok is false when it does not
// say for what the build is: some other file. Source: pytorch/pytorch tools/generate_torch_version.py.
func ParseTorch(text []byte) (t hostinfo.Torch, ok bool) {
	eachAssignment(text, func(name, literal string, isString bool) {
		switch name {
		case "cuda":
			ok = ok || isString || literal == "None"
			t.CUDA = stringOrEmpty(literal, isString)
		case "hip":
			t.HIP = stringOrEmpty(literal, isString)
		}
	})
	return t, ok
}

// ParseONNX reads for which CUDA a build of ParseONNX Runtime is from its capi/build_and_package_info.py: "12.8". "" when it does
// not say: a build without CUDA, or an old one. Source: microsoft/onnxruntime setup.py (save_build_and_package_info).
func ParseONNX(text []byte) (cuda string) {
	eachAssignment(text, func(name, literal string, isString bool) {
		if name == "cuda_version" {
			cuda = stringOrEmpty(literal, isString)
		}
	})
	return cuda
}

// eachAssignment goes through the lines that give a name of the module a literal.
func eachAssignment(text []byte, use func(name, literal string, isString bool)) {
	for line := range strings.Lines(string(text)) {
		target, value, assigns := strings.Cut(line, "=")
		if !assigns {
			continue
		}

		name, _, _ := strings.Cut(target, ":")
		literal, isString := unquoteLiteral(strings.TrimSpace(value))

		// What is indented is inside something, and keeps its spaces.
		use(strings.TrimRight(name, " \t"), literal, isString)
	}
}

// unquoteLiteral reads a literal without escapes, which versions have none of.
func unquoteLiteral(s string) (text string, isString bool) {
	for _, q := range []string{"'", `"`} {
		if inner, ok := strings.CutPrefix(s, q); ok {
			text, _, closed := strings.Cut(inner, q)
			return text, closed
		}
	}
	word, _, _ := strings.Cut(s, "#")
	return strings.TrimSpace(word), false
}

func stringOrEmpty(literal string, isString bool) string {
	if isString {
		return literal
	}
	return ""
}
