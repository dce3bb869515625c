// Package preload has the C sources of a library that is preloaded in place of a kernel driver: the calls of libc through
// which a vendor's own library reaches its kernel (files.c) and the file that describes the invented machine (load.c). A
// vendor's package adds what the driver answers; preload.h lists that.
package preload

import "embed"

// Sources is the folder c, beside which a vendor's own is put.
//
//go:embed c preload.go
var Sources embed.FS
