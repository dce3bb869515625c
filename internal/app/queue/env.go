package queue

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"gpuard/internal/core/visible"
	"gpuard/internal/host/files"
	"gpuard/internal/host/journal"
)

// keepEnv writes an environment into a file that is named by its content, so that a thousand jobs of one shell need one.
// It is durable, because the job is.
func keepEnv(dir string, env visible.Env) (name string, err error) {
	text := strings.Join(env, "\x00")
	sum := sha256.Sum256([]byte(text))
	name = hex.EncodeToString(sum[:16])
	path := filepath.Join(dir, name)
	if _, err := os.Lstat(path); err == nil || !errors.Is(err, os.ErrNotExist) {
		return name, err
	}
	err = journal.Replace(path, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	return name, err
}

// environment reads what keepEnv wrote.
func environment(dir, name string) (visible.Env, error) {
	text, err := files.Named(filepath.Join(dir, filepath.Base(name)), 16<<20)
	if err != nil {
		return nil, fmt.Errorf("cannot read its environment: %w", err)
	}
	if len(text) == 0 {
		return nil, nil
	}
	return strings.Split(string(text), "\x00"), nil
}
