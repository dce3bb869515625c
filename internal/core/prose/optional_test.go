package prose

import (
	"strconv"
	"testing"
)

func TestOptional(t *testing.T) {
	if got := ValueOr(new(7), "-", strconv.Itoa); got != "7" {
		t.Error(got)
	}
	if got := ValueOr(nil, "-", strconv.Itoa); got != "-" {
		t.Error(got)
	}
	if got := OrElse(new(7), -1) + OrElse(nil, -1); got != 6 {
		t.Error(got)
	}
}
