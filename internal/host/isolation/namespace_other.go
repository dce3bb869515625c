//go:build !amd64 && !arm64

package isolation

import "errors"

const execStep = "execute"

func becomeInNamespace([]string, program) error {
	return errors.New("cannot make namespaces on this processor: use --isolate landlock")
}
