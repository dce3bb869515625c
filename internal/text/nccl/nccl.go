// Package nccl reads files of NCCL settings: /etc/nccl.conf and its like.
package nccl

import "strings"

// ReadSettings returns the settings as NAME=value, in the order of the file. NCCL takes each line up to the first = for the
// name and the rest for the value; it skips lines that begin with # and lines without = (NVIDIA/nccl
// src/misc/param.cc). The first setting of a name counts. NCCL ignores names that no variable can have, such as with a
// byte order mark or a blank before them.
func ReadSettings(src []byte) []string {
	var settings []string
	seen := map[string]bool{}
	for line := range strings.Lines(string(src)) {
		line = strings.TrimRight(line, "\r\n")
		name, value, ok := strings.Cut(line, "=")
		if !ok || !isVariableName(name) || strings.ContainsRune(line, 0) || seen[name] {
			continue
		}

		seen[name] = true
		settings = append(settings, name+"="+value)
	}

	return settings
}

// isVariableName: the word may be the name of an environment variable. A comment's first letter is none of a name.
func isVariableName(name string) bool {
	return name != "" && strings.IndexFunc(name, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) < 0
}
