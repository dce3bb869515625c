package engine

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/container"
)

// Project asks docker compose, with these options, for the project and its services. With "--no-interpolate" its
// variables stay as they are written.
func (e Engine) Project(ctx context.Context, compose []string, options ...string) (container.Project, error) {
	text, err := e.askEngine(ctx, slices.Concat(compose, []string{"config"}, options, []string{"--format", "json"})...)
	switch {
	case err != nil && strings.Contains(err.Error(), "docker"+" --help"):
		return container.Project{}, fmt.Errorf("cannot use docker compose: docker has no plugin of that name; install docker-compose-plugin: https://docs.docker.com/compose/install/linux/")
	case err != nil:
		return container.Project{}, fmt.Errorf("cannot read the project: docker compose says: %w", err)
	}

	p, err := container.ReadProject(text)
	if err != nil {
		return p, fmt.Errorf("cannot read the project: %w", err)
	}

	return p, nil
}

// CheckOverride is an error if this docker compose is too old to replace a list of devices by another file.
//
// https://docs.docker.com/reference/compose-file/merge/#replace-value: !override since 2.24.4.
func (e Engine) CheckOverride(ctx context.Context) error {
	text, err := e.askEngine(ctx, "compose", "version", "--short")
	found := regexp.MustCompile(`^v?(\d+)\.(\d+)\.(\d+)`).FindSubmatch(text)
	if err != nil || found == nil {
		return nil //nolint:nilerr // a build without a number; what is missing is said when the project is read
	}

	var number [3]int
	for i := range number {
		number[i], _ = strconv.Atoi(string(found[i+1]))
	}

	if number[0] < 2 || number[0] == 2 && (number[1] < 24 || number[1] == 24 && number[2] < 4) {
		return fmt.Errorf("cannot use docker compose %s: it cannot replace the devices of a service; install 2.24.4 or a later one", strings.TrimSpace(string(text)))
	}

	return nil
}
