package observe

import "gpuard/internal/host/atomicfile"

// WriteToken makes the file of a token, which only its owner can read.
func WriteToken(path, token string) error {
	return atomicfile.Create(path, []byte(token+"\n"), 0o600)
}
