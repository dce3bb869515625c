package userqueue

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

// storeByHash writes an environment, or limits, into a file that is named by its content, so that a thousand jobs of
// one shell need one. It is durable, because the job is.
func storeByHash(dir string, text string) (name string, err error) {
	sum := sha256.Sum256([]byte(text))
	name = hex.EncodeToString(sum[:16])
	path := filepath.Join(dir, name)
	if _, err := os.Lstat(path); err == nil || !errors.Is(err, os.ErrNotExist) {
		return name, err
	}

	err = journal.ReplaceFile(path, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})

	return name, err
}

// withoutLeaseVars is an environment without what belongs to the lease, the job or the run that the shell is in: all of
// them end before the job begins, and the devices of that lease are not the job's.
func withoutLeaseVars(env visible.Env) visible.Env {
	var vars []visible.Var
	if _, in := env.Lookup("GPUARD_LEASE"); in {
		for _, v := range visible.ForJob(env, "", job.Plan{}, job.UUIDs, gpu.Machine{}) {
			vars = append(vars, visible.Var{Name: v.Name, Unset: true})
		}
	}

	for _, name := range []string{"GPUARD_LEASE", "GPUARD_JOB", "GPUARD_ARRAY_TASK", "SLURM_ARRAY_TASK_ID", jobFolderVar, "GPUARD_SWEEP_RUN", "GPUARD_SWEEP_DIR"} {
		vars = append(vars, visible.Var{Name: name, Unset: true})
	}

	return env.With(vars)
}

// readEnvironment reads what keep wrote.
func readEnvironment(dir, name string) (visible.Env, error) {
	text, err := readStored(dir, name)
	if err != nil || text == "" {
		return nil, err
	}
	return strings.Split(text, "\x00"), nil
}

func readStored(dir, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	text, err := files.ReadNamed(filepath.Join(dir, filepath.Base(name)), 16<<20)
	if err != nil {
		return "", fmt.Errorf("cannot read its environment or its limits: %w", err)
	}

	return string(text), nil
}
