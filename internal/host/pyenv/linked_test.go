package pyenv

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// library is a shared library of the kernel's format that loads others.
func library(needs ...string) string {
	strtab := "\x00.dynamic\x00.dynstr\x00"
	var dynamic []elf.Dyn64
	for _, name := range needs {
		dynamic = append(dynamic, elf.Dyn64{Tag: int64(elf.DT_NEEDED), Val: uint64(len(strtab))})
		strtab += name + "\x00"
	}
	dynamic = append(dynamic, elf.Dyn64{})
	const header, section = 64, 64
	at := uint64(header + 3*section)
	size := uint64(16 * len(dynamic))
	var b bytes.Buffer
	for _, part := range []any{
		elf.Header64{Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Shoff: header, Ehsize: header, Shentsize: section, Shnum: 3, Shstrndx: 2},
		elf.Section64{},
		elf.Section64{Name: 1, Type: uint32(elf.SHT_DYNAMIC), Off: at, Size: size, Link: 2},
		elf.Section64{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: at + size, Size: uint64(len(strtab))},
		dynamic, []byte(strtab),
	} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			panic(err)
		}
	}
	return b.String()
}

// A build for CUDA shows in the names of its libraries, or in those that they load.
func TestLlama(t *testing.T) {
	const folder = "v/lib/python3.11/site-packages/"
	for name, c := range map[string]struct {
		things []string
		want   []string
	}{
		"not there":            {[]string{folder + "torch/"}, nil},
		"without libraries":    {[]string{folder + "llama_cpp/llama.py="}, nil},
		"in lib":               {[]string{folder + "llama_cpp/lib/libggml-cuda.so=" + library("libcudart.so.12"), folder + "llama_cpp/lib/include/"}, []string{"libcudart.so.12", "libggml-cuda.so"}},
		"before there was lib": {[]string{folder + "llama_cpp/libllama.so=" + library("libcublas.so.11", "libc.so.6")}, []string{"libc.so.6", "libcublas.so.11", "libllama.so"}},
		"no ELF":               {[]string{folder + "llama_cpp/lib/libllama.so=text", folder + "llama_cpp/lib/libggml.so/"}, []string{"libggml.so", "libllama.so"}},
		"cut off":              {[]string{folder + "llama_cpp/lib/libllama.so=" + library("libcudart.so.12")[:150]}, []string{"libllama.so"}},
		"tables without end":   {[]string{folder + "llama_cpp/lib/libllama.so=" + strings.Replace(library("x"), string([]byte{3, 0, 2, 0}), string([]byte{0xff, 0xff, 2, 0}), 1)}, []string{"libllama.so"}},
	} {
		folders, _ := where(plant(t, append(c.things, "v/bin/python3", "v/pyvenv.cfg")...)).PackageFolders(t.Context(), Environment{Prefix: "/v"})
		if len(folders) != 1 {
			t.Fatalf("%s: %+v", name, folders)
		}
		got := slices.Clone(folders[0].Llama)
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
