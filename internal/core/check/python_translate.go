package check

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/compat"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/shellquote"
)

func translateLibraries() Check {
	page := Page{
		Code: "ctranslate2-libraries", Title: "CTranslate2 does not find its cuBLAS and cuDNN",
		Text: "CTranslate2, with which faster-whisper and WhisperX run their models, loads cuBLAS and cuDNN from elsewhere: CUDA 12 from 4.0 on and CUDA 11 before, cuDNN 8 before 4.5, cuDNN 9 from 4.5 to 4.6.2, and none from 4.6.3 on. Where one is missing, the program ends with \"Library libcublas.so.12 is not found or cannot be loaded\" or \"Unable to load any of {libcudnn_ops.so.9.1.0, …}\".\n\n" +
			"Unlike PyTorch it does not look into the wheels `nvidia-cublas-cu12` and `nvidia-cudnn-cu12`: name their folders in `LD_LIBRARY_PATH` before Python starts, or install CUDA 12 and cuDNN on the system. The wheels for aarch64 are for the CPU alone; there CTranslate2 has to be compiled.",
		From: []string{translateNeeds, "OpenNMT/CTranslate2: CHANGELOG.md", "OpenNMT/CTranslate2: src/cuda/cublas_stub.cc", "OpenNMT/CTranslate2: docs/installation.md", "SYSTRAN/faster-whisper issue 1182", "OpenNMT/CTranslate2 issue 1826"},
	}
	return Check{Page: page, Look: withDevices(page.Code, "every CTranslate2 finds its cuBLAS and cuDNN", []string{"ctranslate2"}, func(s hostinfo.Site, p hostinfo.Python) []Finding {
		k, found := findPackage(p, "ctranslate2")
		n, known := needsOf(p, k)
		if !found || !known || isFromConda(p, "ctranslate2") {
			return nil
		}

		cuda, _ := compat.Major(n.CUDA)
		wheels := fmt.Sprintf("nvidia-cublas-cu%d", cuda)
		folders := k.Folder + "/nvidia/cublas/lib"
		if n.CUDNN != "" {
			wheels += fmt.Sprintf(" 'nvidia-cudnn-cu%d==%s.*'", cuda, n.CUDNN)
			folders += ":" + k.Folder + "/nvidia/cudnn/lib"
		}

		path := "before the program starts: export LD_LIBRARY_PATH=" + shellquote.Sh(folders) + "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
		bad := libraryFinding(s, p, k, false, Error, func(compat.Needs) string { return pipInstall(p, wheels) + ", and " + path })
		lacks := missingLibraries(s, p, k, n, false)
		for i := range bad {
			switch {
			case bad[i].Severity != Error:
			case len(lacks) == 1 && strings.HasPrefix(lacks[0], "cuDNN"):
				bad[i].Severity, bad[i].Why = Warning, "speech models (Whisper) fail on the GPU; models for text need no cuDNN"
			default:
				bad[i].Why = "it cannot load them, and a program that asks it for the GPU fails"
			}
		}

		if bad != nil {
			return bad
		}

		return onlyInWheels(s, p, k, n, path)
	})}
}

// onlyInWheels reports libraries that lie in wheels alone, where CTranslate2 does not look. A PyTorch of the same CUDA
// loads cuBLAS before, and of cuDNN only the parts that it has used itself.
func onlyInWheels(s hostinfo.Site, p hostinfo.Python, k hostinfo.Package, n compat.Needs, do string) []Finding {
	t, hasTorch := torchOf(p)
	ofTorch, _ := compat.Major(t.cuda)
	cuda, _ := compat.Major(n.CUDA)
	bare := p
	bare.Packages = slices.DeleteFunc(slices.Clone(p.Packages), func(k hostinfo.Package) bool { return k.From != "conda" })
	lacks := missingLibraries(s, bare, k, n, false)
	runs, isKnown := compat.DriverRuns(driverVersion(s), n.CUDA)
	switch {
	case len(lacks) == 0 || s.Libraries.Problem != "" || len(nvidiaDevices(s)) == 0 || isKnown && !runs:
		return nil
	case hasTorch && ofTorch == cuda && n.CUDNN == "":
		return nil
	}

	return []Finding{{Severity: Warning, Seen: fmt.Sprintf("%s %s needs %s, which only wheels have here, and it does not look there", k.Name, k.Version, strings.Join(lacks, ", ")),
		Why: "a program that asks it for the GPU fails, unless something else has loaded them before", Do: do}}
}
