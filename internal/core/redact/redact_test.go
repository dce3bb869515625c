package redact

import (
	"encoding/json"
	"strings"
	"testing"
)

func alices() *Scrubber {
	return New([]Secret{
		{User, "alice"}, {User, "bo"}, {User, "root"}, {User, "7654321"}, {Host, "gpu01"}, {Path, "/home/alice/My Project/.venv"},
		{Command, "/home/alice/bin/secretsolver --data=/data/patients"}, {Command, "python train_cancer.py"},
	}, []string{"9.1.0.70"})
}

func TestText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"nothing to hide: driver 550.54.15, CUDA 12.4, GPU 0000:17:00.0, 80 GiB", "nothing to hide: driver 550.54.15, CUDA 12.4, GPU 0000:17:00.0, 80 GiB"},
		{"used by alice, bo and root", "used by user-1, user-2 and root"},
		{"Alice's book about bo", "user-1's book about user-2"},
		{"malice-run", "muser-1-run"},
		{"gpu01.cs.uni-bonn.de and gpu01", "host-1 and host-2"},
		{"/home/alice/My Project/.venv/lib/python3.11/site-packages/torch", "/home/user-1/name-1/.venv/lib/python3.11/site-packages/torch"},
		{"/home/carol/thesis/train.py", "/home/user-2/name-2/name-3.py"},
		{"~carol/thesis and ~/x1", "~user-2/name-2 and ~/name-3"},
		{"/usr/local/cuda-12.4/lib64/libcudart.so.12.4.127", "/usr/local/cuda-12.4/lib64/libcudart.so.12.4.127"},
		{"/usr/lib/x86_64-linux-gnu/libsecret.so.1", "/usr/lib/x86_64-linux-gnu/name-2"},
		{"alice@example.org, +bob@gpu01", "mail-1, mail-2"},
		{"10.0.0.5 and 10.0.0.5, not 127.0.0.1; cuDNN 9.1.0.70", "address-1 and address-1, not 127.0.0.1; cuDNN 9.1.0.70"},
		{"fe80::1ff:fe23:4567:890a%eth0, ::1, 00:1B:44:11:3A:B7", "address-2%eth0, ::1, address-1"},
		{"[::ffff:10.3.4.5]:1234, 2001:db8::10.3.4.5, 2001:db8:0:0:0:0:0:77", "[address-1]:1234, address-2, address-3"},
		{"0x0002c903000a0b0c, 0002:c903:000a:0b0c, PCI 0000:17:00.0", "address-1, address-2, PCI 0000:17:00.0"},
		{"proxy dave:hunter2!@proxy.corp:3128, it failed: carol@x1.org", "proxy mail-1:3128, it failed: mail-2"},
		{"hf_abcdefghijklmnopq, sk-abcdefghijklmnop and HF_TOKEN=x1 --password: 'y2', TOKENIZERS_PARALLELISM=false, API_KEY=(left out)", "secret-1, secret-2 and HF_TOKEN=secret-3 --password: 'secret-4', TOKENIZERS_PARALLELISM=false, API_KEY=(left out)"},
		{"NCCL_TOPO_FILE=patients/topo, /data/run=3/patients", "NCCL_TOPO_FILE=name-2/name-3, /data/run=3/name-2"},
		{"--device=nvidia.com/gpu=0, CUDA_VISIBLE_DEVICES=MIG-GPU-fa4e0000-0000-4000-8000-0000000000aa/1/0", "--device=nvidia.com/gpu=0, CUDA_VISIBLE_DEVICES=MIG-GPU-00000001-0000-0000-0000-000000000000/1/0"},
		{"/home/20231234/x7 of 7654321, not of 76543219", "/home/user-2/name-2 of user-3, not of 76543219"},
		{"c10::Error in torch::cuda at 12:34:56", "c10::Error in torch::cuda at 12:34:56"},
		{"GPU-fa4e0000-0000-4000-8000-0000000000aa then GPU-fa4e and MIG-fa4e0000-0000-4000-8000-0000000000ab",
			"GPU-00000001-0000-0000-0000-000000000000 then GPU-00000001 and MIG-00000002-0000-0000-0000-000000000000"},
		{"GPU-accelerated, GPU-based", "GPU-accelerated, GPU-based"},
		{"Serial Number : 1324419012345", "Serial Number : serial-1"},
		{"https://docs.nvidia.com/deploy/xid-errors/ https://me:pw@proxy.corp:3128/x", "https://docs.nvidia.com/deploy/xid-errors/ url-1"},
		{"and/or, 8 GiB/s", "and/or, 8 GiB/s"},
		{"python train_cancer.py of alice", "python … of user-1"},
		{"/home/alice/bin/secretsolver --data=/data/patients", "program-1 …"},
		{"process 42 of alice, secretsolver, and python of bo", "process 42 of user-1, program-1, and python of user-2"},
		{"it runs train_cancer.py", "it runs name-2"},
		{"bo,bo,bo", "user-2,user-2,user-2"},
		{"/mnt/Users/dave/x7", "/mnt/Users/user-2/name-2"},
		{"it lies in /srv/patients.", "it lies in /srv/name-2."},
		{"\x00 https://docs.nvidia.com/a/b\x00 carol@x1.org", " https://docs.nvidia.com/a/b mail-1"},
		{"https://docs.nvidia.com/?who=carol7 https://carol7@docs.nvidia.com/x https://docs.nvidia.com/x@carol7", "url-1 url-2 url-3"},
	} {
		if got := alices().Text(c.text); got != c.want {
			t.Errorf("%q\n becomes %q\n and not %q", c.text, got, c.want)
		}
	}
}

// TestLongestFirst: a name inside another name, and a folder with a blank directly in the root folder.
func TestLongestFirst(t *testing.T) {
	s := New([]Secret{{User, "carol"}, {User, "caroline"}, {Path, "/My Files"}, {Path, "/My Files/and more"}, {Path, "/"}}, nil)
	if got := s.Text("/My Files/and more, /My Files, caroline, carol"); got != "/name-1/name-2, /name-1, user-1, user-2" {
		t.Error(got)
	}
}

// TestSameWord: equal secrets have equal replacements in every text of one scrubber, and different ones different.
func TestSameWord(t *testing.T) {
	s := alices()
	first := s.Text("/data1/a7/x 10.0.0.5 carol@x.org GPU-fa4e0000-0000-4000-8000-0000000000aa")
	if again := s.Text("/data1/a7/x 10.0.0.5 carol@x.org GPU-fa4e0000-0000-4000-8000-0000000000aa"); again != first {
		t.Errorf("%q, then %q", first, again)
	}
	if other := s.Text("/data1/b7/x 10.0.0.6 dave@x.org GPU-fa4e0000-0000-4000-8000-0000000000ab"); len(strings.Fields(other)) != 4 {
		t.Errorf("%q", other)
	} else {
		for i, w := range strings.Fields(other) {
			if w == strings.Fields(first)[i] {
				t.Errorf("two secrets are both %q", w)
			}
		}
	}
}

func TestJSON(t *testing.T) {
	const in = `{"user":"bo","alice":1,"list":["/home/alice/x7"],"command":"solver7 /data/x7","serial":"A1","index":0,"size":85899345920,"name":"NVIDIA A100","none":null,"owner":{"user":"root"}}`
	out, err := alices().ScrubJSON([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal([]byte(`{"user":"user-2","alice":1,"list":["/home/user-1/name-2"],"command":"program-2 …","serial":"serial-1","index":0,"size":85899345920,"name":"NVIDIA A100","none":null,"owner":{"user":"root"}}`), &want)
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if string(a) != string(b) {
		t.Errorf("%s\nand not\n%s", a, b)
	}
	if _, err := alices().ScrubJSON([]byte("{")); err == nil {
		t.Error("half an object is scrubbed")
	}
}

// FuzzScrub: no listed secret remains anywhere, nor one that is recognized by its form.
func FuzzScrub(f *testing.F) {
	f.Add("alice", "gpu01", "/home/", "/x")
	f.Add("bob42", "n01.cs", "of ", ", since")
	f.Add("torch", "libcu", "::", "0")
	f.Add("a-b", "x_y", "GPU-", "-0")
	f.Fuzz(func(t *testing.T, user, host, before, after string) {
		if !fair(user) || !fair(host) {
			t.Skip()
		}
		s := New([]Secret{{User, user}, {Host, host}, {Path, "/home/" + user + "/" + host}}, nil)
		for _, text := range []string{before + user + after, before + " " + host + " " + after, "/home/" + user + "/" + host + after, user + "/" + user + " " + host + "-" + user} {
			out := strings.ToLower(s.Text(text))
			for _, secret := range []string{user, host} {
				if strings.Contains(out, strings.ToLower(secret)) {
					t.Errorf("%q survives: %q becomes %q", secret, text, out)
				}
			}
		}
		for _, secret := range []string{"10.1.2.3", "::ffff:10.7.8.9", "hf_abcdefghijklmnopq", "fe80::1ff:fe23:4567:890a", "00:1b:44:11:3a:b7", "carol@example.org", "GPU-fa4e0000-0000-4000-8000-0000000000aa", "/data7/patients7"} {
			if out := s.Text(before + " " + secret + " " + after); strings.Contains(out, secret) {
				t.Errorf("%q survives: %q", secret, out)
			}
		}
	})
}

// fair reports names of five letters and more that no replacement contains: shorter ones are replaced only as whole
// words.
func fair(name string) bool {
	if len(name) < 5 || len(name) > 40 || isCommonName(name) {
		return false
	}
	for _, c := range []byte(name) {
		if !isWordByte(c) && c != '-' && c != '.' {
			return false
		}
	}
	// The words of replacements, and of the texts of the test itself.
	made := "user-123456789 host-123456789 name-123456789 program-123456789 address-123456789 mail-123456789 url-123456789 secret-123456789 serial-123456789 00000001-0000-0000-0000-000000000000"
	return !strings.Contains(made, strings.ToLower(name)) && strings.Trim(name, "0123456789.-_") != ""
}
