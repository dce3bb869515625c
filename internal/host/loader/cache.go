package loader

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
)

// cacheEntry is one library in the loader's cache.
type cacheEntry struct{ name, path string }

// Layout of /etc/ld.so.cache (bminor/glibc sysdeps/generic/dl-cache.h, struct cache_file_new and file_entry_new): a
// header of 48 bytes, then 24 bytes for each library, then the names. A cache that old loaders can read too has another
// table before these.
const (
	newMagic  = "glibc-ld.so.cache1.1"
	oldMagic  = "ld.so-1.7.0"
	headSize  = 48
	entrySize = 24
	// 11 bytes of magic, one byte of padding, the count.
	oldHead   = 16
	oldEntry  = 12
	alignment = 8
)

// nativeFlags returns the flags of libraries for programs of this architecture (FLAG_ELF_LIBC6 and FLAG_…_LIB64 of the
// same file); 0 if they are not known, which accepts all.
func nativeFlags() int32 {
	switch runtime.GOARCH {
	case "amd64":
		return 0x0303
	case "arm64":
		return 0x0a03
	}
	return 0
}

var errCache = errors.New("it is not what ldconfig writes")

// parseCache parses the cache. It checks every offset: a truncated or damaged file is an error and never gives a part
// of the libraries.
func parseCache(data []byte, flags int32) ([]cacheEntry, error) {
	order := binary.NativeEndian
	if bytes.HasPrefix(data, []byte(oldMagic)) {
		if len(data) < oldHead {
			return nil, errCache
		}

		skip := uint64(order.Uint32(data[12:]))*oldEntry + oldHead
		skip = (skip + alignment - 1) / alignment * alignment
		if skip > uint64(len(data)) {
			return nil, errCache
		}

		data = data[skip:]
	}

	if !bytes.HasPrefix(data, []byte(newMagic)) || len(data) < headSize {
		return nil, errCache
	}

	count, size := uint64(order.Uint32(data[20:])), uint64(order.Uint32(data[24:]))
	if end := headSize + count*entrySize; end > uint64(len(data)) || end+size > uint64(len(data)) {
		return nil, errCache
	}

	var found []cacheEntry
	for i := range count {
		at := data[headSize+i*entrySize:]
		if flags != 0 && int32(order.Uint32(at)) != flags || order.Uint64(at[16:]) != 0 {
			// Another architecture, or only for some processors.
			continue
		}

		name, ok1 := cString(data, order.Uint32(at[4:]))
		path, ok2 := cString(data, order.Uint32(at[8:]))
		if !ok1 || !ok2 {
			return nil, errCache
		}

		found = append(found, cacheEntry{name, path})
	}

	return found, nil
}

// cString returns the text at an offset, up to its zero byte.
func cString(data []byte, at uint32) (string, bool) {
	if uint64(at) >= uint64(len(data)) {
		return "", false
	}
	end := bytes.IndexByte(data[at:], 0)
	if end <= 0 {
		return "", false
	}

	return string(data[at : int(at)+end]), true
}
