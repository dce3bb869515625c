package podspec

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/test/steps"
)

func TestRead(t *testing.T) {
	const src = `apiVersion: batch/v1
kind: Job
spec:
  template:
    spec:
      containers:
        - name: train
          image: x
          env:
            - name: CUDA_VISIBLE_DEVICES
              value: "0,1"
            - name: A
              valueFrom: {}
            - {name: B, value: $(A)}
          command: ["bash", "-c"]
          args:
            - |
              export C=1
              python a.py
          resources:
            limits:
              nvidia.com/gpu: 1
---
a: {containers: [{name: no, image: y}]}
---
apiVersion: v1
kind: Pod
spec:
  containers:
    - command: [python, a.py, "$(B)"]
`
	f, err := ReadSteps("pod.yaml", []byte(src))
	want := []string{
		`10:15 set CUDA_VISIBLE_DEVICES env in train 1 ="0,1"@"\"0,1\""`,
		`12:15 set A env in train 1 ?""@"A"`,
		`14:16 set B env in train 1 ?"$(A)"`,
		`8:18 setting image in train 1 ="x"`,
		`22:15 setting resources.limits.nvidia.com/gpu in train 1 ="1"`,
		`15:21 command in train 1 ="bash"@"\"bash\"" ="-c"@"\"-c\"" ="export C=1\npython a.py\n"@"export C=1\n              python a.py"`,
		`18:15 script in train 1 indent 14 ="export C=1\npython a.py\n"@"export C=1\n              python a.py"`,
		`30:17 command in  2 ="python" ="a.py" ?"$(B)"@"\"$(B)\""`,
	}
	if got := steps.RenderSteps(src, f); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n got %s\nwant %s", err, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    env: [{name: B, value: \"1\"}]\n    command: [sh, -c, 'c d']\n    resources: {limits: {x: 1}}\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		file, err := ReadSteps("pod.yaml", src)
		if err != nil {
			return
		}
		for _, s := range file.Steps {
			if s.At.Line < 1 || s.At.EndLine < s.At.Line {
				t.Fatalf("place %+v of %+v", s.At, s)
			}
		}
	})
}

// TestManyAliases: a small file whose anchors name each other takes no time that grows with what they come to.
func TestManyAliases(t *testing.T) {
	text := "apiVersion: v1\nkind: Pod\na: &a [x]\n"
	before := "a"
	for _, name := range strings.Split("bcdefghijklm", "") {
		text += name + ": &" + name + " [" + strings.Repeat("*"+before+",", 9) + "]\n"
		before = name
	}
	began := time.Now()
	_, err := ReadSteps("pod.yaml", []byte(text+"spec: {containers: *"+before+"}\n"))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("%v: %v", took, err)
	}
}
