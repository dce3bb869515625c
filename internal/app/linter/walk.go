package linter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/lint"
	"gpuard/internal/host/files"
	"gpuard/internal/text/notebook"
	"gpuard/internal/text/python"
)

// maxFileSize is the size of the largest file that is read, in bytes; files written by hand are smaller.
const maxFileSize = 2 << 20

// maxNotebookSize is that of a notebook, whose outputs may be many times as long as its code.
const maxNotebookSize = 64 << 20

// firstBytes is how much of a file is read to see whether it is a script.
const firstBytes = 2 << 10

// stdinPath is the path that means standard input.
const stdinPath = "-"

// noFormat is why a file is left out that a hook names with all the others that were changed.
const noFormat = "not a format that gpuard reads"

// sourceFile is a file to be read.
type sourceFile struct {
	path string
	kind lint.Kind
	text []byte
	// What undoes a script that conda runs on activation, where it could be read.
	undo *deactivation
	// nil for standard input.
	of *project
	// Its folder, as an absolute path.
	dir string

	aside aside
}

// What the files of a batch hold together at most, and how many they are. Texts and their trees live as long as their
// batch: all of them took 2.9 GB for 32,000 files.
const (
	maxBatchBytes = 2 << 20
	maxBatchFiles = 1000
)

// collectFiles finds the files, reads them, and hands them on in batches. It searches folders in the order of names, and
// reads a file in several of the paths once.
func (o Options) collectFiles(ctx context.Context, r *Report, handOn func(batch []sourceFile)) error {
	c := &collector{ctx: ctx, report: r, docs: o.Docs, readForm: readForm(), listForm: listForm(), programForm: programForm(), seen: map[string]bool{}, hooks: map[string]*deactivation{}, handOn: handOn,
		projects: map[string]*project{}, roots: map[string]string{}}
	for _, p := range o.Paths {
		if p == stdinPath {
			text, err := io.ReadAll(io.LimitReader(o.Input, maxFileSize+1))
			if err != nil {
				return fmt.Errorf("cannot read standard input: %w", err)
			}

			kind := o.As
			if kind == "" {
				kind = guessKind(stdinPath, text)
			}

			if kind == "" {
				return &exit.Usage{Text: "cannot tell the format of standard input: say it with --as"}
			}

			c.addFile(sourceFile{path: stdinPath, kind: kind, text: text})
			continue
		}
		info, err := os.Stat(p)
		switch {
		case err != nil:
			return &exit.Usage{Text: "cannot look at " + p + ": " + errorReason(err)}
		case info.IsDir():
			c.collectFolder(p)
		default:
			c.collectFile(p, filepath.Dir(absolute(p)), info, true)
		}
	}
	c.finishBatch()

	return nil
}

// finishBatch hands on what was collected.
func (c *collector) finishBatch() {
	if len(c.batch) > 0 {
		c.handOn(c.batch)
	}
	c.batch, c.size = nil, 0
}

// errorReason is what the kernel says, without the name of the call and the path.
func errorReason(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

type collector struct {
	ctx    context.Context
	report *Report
	docs   bool // Markdown is read
	// What reads a variable of GPUs.
	readForm *regexp.Regexp
	// What gives a program a list of devices, and what starts one of Python.
	listForm, programForm *regexp.Regexp
	// The files that were met, by the absolute path.
	seen  map[string]bool
	batch []sourceFile
	// The size of the texts of the batch, in bytes.
	size   int
	handOn func(batch []sourceFile)
	hooks  map[string]*deactivation // by the folder

	projects map[string]*project // by the folder
	// The folder that git keeps, by a folder in it.
	roots map[string]string
}

// collectFolder collects everything below root. It does not follow symbolic links below root: the target is found at its own
// place, or was not asked for.
func (c *collector) collectFolder(root string) {
	asked := absolute(root)

	// A link that was named is followed.
	root += string(filepath.Separator) + "."
	_ = filepath.WalkDir(root, func(p string, entry fs.DirEntry, err error) error {
		switch {
		case c.ctx.Err() != nil:
			return filepath.SkipAll
		case err != nil:
			c.addProblem(p, errorReason(err))
			return nil
		case entry.IsDir():
			if p != root && (slices.Contains(foreignFolders(), entry.Name()) || isEnvironment(p)) {
				return filepath.SkipDir
			}
		case entry.Type().IsRegular():
			info, err := entry.Info()
			if err == nil {
				// Else it vanished meanwhile.
				c.collectFile(p, asked, info, false)
			}
		}
		return nil
	})
}

// foreignFolders are folders of things that other people wrote, or that programs made.
func foreignFolders() []string {
	return []string{".git", ".hg", ".svn", ".jj", "node_modules", "site-packages", "dist-packages", "__pycache__", "__pypackages__",
		".tox", ".nox", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints", ".eggs", ".terraform",
		"third_party", "third-party", "thirdparty", "thirdparties", "thirdpartys", "3rdparty", "3rd_party", "vendor", "vendored"}
}

// isEnvironment reports whether the folder is a virtual environment or one of conda.
func isEnvironment(dir string) bool {
	return slices.ContainsFunc([]string{"pyvenv.cfg", "conda-meta"}, func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	})
}

// collectFile reads one file, when it is of a format that is known. below is the folder that was asked for; asked: the caller
// named that file.
func (c *collector) collectFile(p, below string, info fs.FileInfo, asked bool) {
	same, err := filepath.Abs(p)
	if err != nil || c.seen[same] {
		return
	}

	c.seen[same] = true
	kind := kindByName(filepath.ToSlash(same))
	if kind == lint.Markdown && !c.docs {
		kind = ""
	}

	if !asked && kind == "" && !mayBeScript(p) {
		return
	}

	if !info.Mode().IsRegular() {
		c.addProblem(p, "it is not a regular file")
		return
	}

	if info.Size() > maxFileSize && (kind != lint.Notebook || info.Size() > maxNotebookSize) {
		if asked || kind != "" {
			c.report.Skipped = append(c.report.Skipped, Omission{p, "larger than 2 MiB"})
		}
		return
	}

	// It may be another file by now, such as a pipe.
	read, err := files.ReadUpTo(p, maxNotebookSize)
	if err != nil {
		c.addProblem(p, errorReason(err))
		return
	}

	text := read.Content
	if kind == "" {
		kind = guessKind(p, text)
	}

	if kind == "" {
		if asked {
			why := noFormat
			if kindByName(filepath.ToSlash(same)) == lint.Markdown {
				why += ", but for the shell code in it with --docs"
			}
			c.report.Skipped = append(c.report.Skipped, Omission{p, why})
		}
		return
	}

	dir := filepath.Dir(same)
	of := c.projectOf(dir, below)
	of.folders[dir] = true
	of.noteReads(p, text, c.readForm)
	of.noteStarts(p, kind, text, c.listForm, c.programForm)
	aside := of.asideOf(dir)
	aside.copied = aside.copied || kind == lint.Workflow && !of.runsWorkflows(dir)
	c.addFile(sourceFile{path: p, kind: kind, text: text, undo: c.findUndo(p, same), of: of, dir: dir, aside: aside})
}

// absolute is the whole path of one, or the path itself where the working directory is gone.
func absolute(p string) string {
	whole, err := filepath.Abs(p)
	if err != nil {
		return p
	}
	return whole
}

// mayBeScript reports whether the text of a file can say what its name does not: YAML by its keys, anything else by its
// first line. Of a file that is no script, a few bytes are read.
func mayBeScript(p string) bool {
	switch ext := strings.ToLower(filepath.Ext(p)); {
	case ext == ".yml" || ext == ".yaml":
		return true
	case slices.Contains(strings.Fields(neverScripts), ext):
		return false
	}

	// It may be a pipe by now.
	file, err := os.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		// Whoever reads it says why.
		return true
	}

	defer file.Close()
	begin := make([]byte, firstBytes)
	n, _ := io.ReadFull(file, begin)

	return bytes.HasPrefix(begin[:n], []byte("#!")) || isBatch(begin[:n])
}

// neverScripts are endings of files that a folder may have thousands of.
const neverScripts = ".c .cc .cpp .cxx .cu .cuh .h .hh .hpp .f .f90 .go .rs .java .js .jsx .ts .tsx .css .scss .html .htm .xml .svg .json .jsonl .toml .md .markdown .rst .tex .pdf " +
	".png .jpg .jpeg .gif .webp .bmp .ico .tif .tiff .mp3 .mp4 .wav .flac .npy .npz .pt .pth .bin .safetensors .onnx .pkl .h5 .hdf5 .parquet .arrow .csv .tsv .zip .gz .tgz .xz .bz2 .zst " +
	".tar .whl .so .a .o .dylib .dll .exe .woff .woff2 .ttf .lock .map .proto .patch .diff"

func (c *collector) addProblem(p, why string) {
	problem := Omission{p, "cannot read it: " + why}
	if !slices.Contains(c.report.Problems, problem) {
		// Some are read for others, too.
		c.report.Problems = append(c.report.Problems, problem)
	}
}

func (c *collector) addFile(s sourceFile) {
	if s.kind == lint.Notebook {
		s.text = notebook.WithoutOutputs(s.text)
	}
	switch {
	case len(s.text) > maxFileSize:
		c.report.Skipped = append(c.report.Skipped, Omission{s.path, "larger than 2 MiB"})
	case bytes.IndexByte(s.text, 0) >= 0:
		c.report.Skipped = append(c.report.Skipped, Omission{s.path, "binary"})
	default:
		if s.kind == lint.Python && !python.HasRuleWord(s.text) {
			// It counts as read: of most of what a repository has no rule says anything.
			s.text = nil
		}
		c.batch = append(c.batch, s)
		c.size += len(s.text)
		if c.size >= maxBatchBytes || len(c.batch) >= maxBatchFiles {
			c.finishBatch()
		}
	}
}
