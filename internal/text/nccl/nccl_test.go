package nccl

import (
	"slices"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	got := ReadSettings([]byte("# settings\nNCCL_DEBUG=WARN\n\nNCCL_SOCKET_IFNAME==ens1f0\r\nnothing\nNCCL_DEBUG=INFO\n=x\n NCCL_IB_DISABLE=1\n#NCCL_PROTO=LL\nNCCL_P2P_LEVEL=\x00\nNCCL_ALGO=\n"))
	if want := []string{"NCCL_DEBUG=WARN", "NCCL_SOCKET_IFNAME==ens1f0", "NCCL_ALGO="}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := ReadSettings([]byte("\xef\xbb\xbfNCCL_P2P_DISABLE=1\n")); got != nil {
		t.Errorf("behind a byte order mark: %q", got)
	}
	if got := ReadSettings(nil); got != nil {
		t.Errorf("of nothing: %q", got)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("NCCL_DEBUG=WARN\n#x\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		got := ReadSettings(src)
		if again := ReadSettings([]byte(strings.Join(got, "\n"))); !slices.Equal(again, got) {
			t.Errorf("%q was read as %q, and that as %q", src, got, again)
		}
	})
}
