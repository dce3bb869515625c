package linter

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"gpuard/internal/core/visible"
	"gpuard/internal/host/interpreter"
	"gpuard/internal/text/python"
)

// pythonFiles reads scripts and notebooks with one interpreter, in their order; path "" is the first of the environment
// that can. Many files are spread over several processes of it.
func pythonFiles(ctx context.Context, path string, env visible.Env, sources []python.Source) ([]python.Reading, error) {
	paths := []string{path}
	if path == "" {
		found, err := interpreter.FindPythons(func(name string) string { v, _ := env.Lookup(name); return v })
		if err != nil {
			return nil, err
		}
		paths = found
	}

	var first error

	for _, one := range paths {
		read, err := readWithPython(ctx, one, sources)
		if err == nil || ctx.Err() != nil {
			return read, err
		}
		if first == nil {
			first = err
		}
	}

	return nil, first
}

func readWithPython(ctx context.Context, path string, sources []python.Source) ([]python.Reading, error) {
	parts := python.DivideFiles(sources, runtime.GOMAXPROCS(0))
	read := make([][]python.Reading, len(parts))
	failed := make([]error, len(parts))
	var running sync.WaitGroup

	for i, part := range parts {
		running.Go(func() {
			answer, err := interpreter.RunScript(ctx, path, python.Script(), python.EncodeRequest(part))
			if err == nil {
				read[i], err = python.DecodeAnswer(part, answer)
			}
			failed[i] = err
		})
	}

	running.Wait()
	var all []python.Reading

	for _, part := range read {
		all = append(all, part...)
	}

	return all, errors.Join(failed...)
}
