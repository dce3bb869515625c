package lint

import (
	"regexp"
	"sync"
)

// lazyRegexp is a regular expression that is made when it is first used: every start of gpuard would pay for it otherwise,
// and most have nothing to do with lint.
func lazyRegexp(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
