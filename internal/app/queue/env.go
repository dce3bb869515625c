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

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
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

// ofShell is an environment without what belongs to the lease, the job or the run that the shell is in: all of them end
// before the job begins, and the devices of that lease are not the job's.
func ofShell(env visible.Env) visible.Env {
	var vars []visible.Var
	if _, in := env.Lookup("GPUARD_LEASE"); in {
		for _, v := range visible.ForJob(env, "", job.Plan{}, job.UUIDs, gpu.Machine{}) {
			vars = append(vars, visible.Var{Name: v.Name, Unset: true})
		}
	}
	for _, name := range []string{"GPUARD_LEASE", "GPUARD_JOB", mark, "GPUARD_SWEEP_RUN", "GPUARD_SWEEP_DIR"} {
		vars = append(vars, visible.Var{Name: name, Unset: true})
	}
	return env.With(vars)
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
