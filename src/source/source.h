/* Sources: the bytes of a URL of any HTTP server, or of a file of this machine, become those of a buffer.
 *
 * The first bytes tell what the file is: raw bytes, a .npy or safetensors file. Its image in memory is cut into parts,
 * and each part reads one range of the file, straight into the memory or the slots of a multipart upload. A file that
 * is damaged or of another length than its header says is refused before anything is changed. Nothing is visible
 * before the commit, and no more of a body than its header is held in memory. api/resources/sources.c calls this. */
#ifndef GB_SOURCE_SOURCE_H
#define GB_SOURCE_SOURCE_H

#include "source/fetch.h"
#include "source/image.h"

#define GB_SOURCE_URL_MAX 8192
#define GB_SOURCE_HEADERS_MAX 16
#define GB_SOURCE_PATH_MAX 4095

/* All is copied, unless it says "taken". */
struct gb_source_params {
    const char *url;            /* http[s]; NULL: a file */
    const char *const *headers; /* "Name: value", sent to the URL's own origin alone */
    size_t header_count;
    const char *const *permitted; /* origins of the URL and of its redirects */
    size_t permitted_count;
    const char *file; /* relative to one of the folders */
    const char *const *folders;
    size_t folder_count;
    const char *if_match;   /* the strong tag that the source must have, with its quotes; NULL: any */
    struct gb_image_ask is; /* what the client says of it */
    unsigned connections;   /* 0: GB_PULL_CONNECTIONS */
    struct gb_digest_set digests;
    struct gb_buffer_params to;   /* session and name; kind, pool, device, durability and labels where they are set */
    unsigned wait_ms;             /* how long to wait for memory to become free */
    struct gb_buffer_check check; /* of the destination; taken in every case */
};

/* Whether a header of that name may be given: a token that is not of the connection, nor one that this side sets. */
bool gb_source_header_permitted(const char *name, size_t n);
/* Reads an origin and a path of http[s]://HOST[:PORT]/PATH[?QUERY]; no name, password or fragment. Returns 0, or -1
 * with INVALID_ARGUMENT, which has no query. */
int gb_source_url_read(const char *url, char ret_origin[GB_PULL_ORIGIN_SIZE], struct gb_error *err);
/* Whether a path may be opened below a folder: relative, without an empty part and "..". Returns 0, or -1 with
 * INVALID_ARGUMENT. */
int gb_source_file_read(const char *path, struct gb_error *err);

/* Starts a copy. It can be cancelled until the bytes are committed. Errors: as of gb_multipart_begin and _complete;
 * SATURATED; SOURCE_UNREACHABLE, SOURCE_REFUSED, SOURCE_CHANGED, SOURCE_NOT_PERMITTED; SOURCE_NOT_FOUND: no such file;
 * UNSUPPORTED_ARRAY, SHAPE_MISMATCH, BODY_TOO_LARGE: what comes is not what it says; DIGEST_MISMATCH. */
void gb_source_start(struct gb_pulls *pulls, const struct gb_source_params *params, struct gb_pull_call *call);

#endif
