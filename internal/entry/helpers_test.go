package entry

import (
	"context"
	"fmt"
	"testing"

	"gpuard/internal/app/machine"
)

// TestOrders: a helper gets its words and its orders, and refuses a command line that is none of gpuard's.
func TestOrders(t *testing.T) {
	type orders struct {
		Lease string `json:"lease"`
	}
	got := ""
	helper := withOrders(1, func(_ context.Context, _ *machine.Host, words []string, o orders) error {
		got = fmt.Sprint(words, " ", o.Lease)
		return nil
	})
	if err := helper(t.Context(), nil, []string{"/x", `{"lease":"k3f9"}`}); err != nil || got != "[/x] k3f9" {
		t.Errorf("%q, %v", got, err)
	}
	for _, words := range [][]string{nil, {"/x"}, {"/x", ""}, {"/x", "0"}, {"/x", "{}", "more"}} {
		if err := helper(t.Context(), nil, words); err == nil {
			t.Errorf("%q is accepted", words)
		}
	}
}
