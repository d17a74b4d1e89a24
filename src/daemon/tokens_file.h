/* Tokens that a file provides (--tokens-file): read as a whole, or they stay as they were. tokens.c puts them in force;
 * "gpubufd token" and "gpubufd check" read the file, too.
 *
 * A line gives one token by words of the form key=value, of which values may stand in double quotes: name, scope,
 * secret or hash (the SHA-256 of the secret, in hexadecimal), session, prefix, expires, subject. "#" begins a comment.
 * A file that begins with "[" or "{" has JSON objects with the same keys instead, in a list or one after another. */
#ifndef GB_DAEMON_TOKENS_FILE_H
#define GB_DAEMON_TOKENS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/error.h"
#include "base/map.h"
#include "model/model.h"

/* A file with more is refused. */
#define GB_TOKENS_FILE_MAX 10000

/* --- tokens in a list, and found by what one token alone may have ------------------------------------------------- */

/* Zero-initialised is empty; free(items) ends it. */
struct gb_token_array {
    struct gb_token_rec *items;
    size_t count;
    size_t capacity;
};

/* Room for `capacity` in all: until there are more, the items stay where they are. */
int gb_token_array_reserve(struct gb_token_array *array, size_t capacity, struct gb_error *err);
int gb_token_array_add(struct gb_token_array *array, const struct gb_token_rec *rec, struct gb_error *err);

/* Zero-initialised is empty. The tokens are borrowed, and must not move. */
struct gb_tokens_index {
    struct gb_map names;
    struct gb_map secrets; /* by their hashes, former ones too */
    struct gb_map subjects;
};

int gb_tokens_index_add_all(struct gb_tokens_index *index, const struct gb_token_array *array, struct gb_error *err);
/* A token that has what rec has, too; NULL: none. *ret_same: "name", "secret" or "subject"; written when found. */
const struct gb_token_rec *gb_tokens_index_find(const struct gb_tokens_index *index, const struct gb_token_rec *rec,
                                                const char **ret_same);
/* NULL: none. */
const struct gb_token_rec *gb_tokens_index_named(const struct gb_tokens_index *index, const char *name);
void gb_tokens_index_done(struct gb_tokens_index *index);

/* --- the file ----------------------------------------------------------------------------------------------------- */

/* How the file looks. */
struct gb_tokens_look {
    bool there;
    unsigned long long device;
    unsigned long long inode;
    long long size;
    struct timespec modified;
    struct timespec changed;
};

/* The tokens of the file as it was last read without an error. Zero-initialised is empty. */
struct gb_tokens_file {
    struct gb_token_rec *recs;
    unsigned *lines; /* at which each begins */
    size_t count;
    struct gb_tokens_index index;
    struct gb_tokens_look opened; /* when it was last opened */
    struct gb_tokens_look seen;   /* when it was last checked, */
    uint64_t seen_ns;             /* as it is since then */
};

/* Whether the file looks other than when it was last opened, and has looked so for half a second: one that is being
 * written is left alone. */
bool gb_tokens_file_changed(struct gb_tokens_file *file, const char *path, uint64_t now_ns);

/* Reads all of it. On failure the tokens stay as they are. INVALID_ARGUMENT: the file, its mode or a line is refused;
 * the text names the line, and nothing of what stands in it but keys and names. */
int gb_tokens_file_read(struct gb_tokens_file *file, const char *path, struct gb_error *err);
/* Where the token, one of the file's, begins. */
unsigned gb_tokens_file_line(const struct gb_tokens_file *file, const struct gb_token_rec *rec);
void gb_tokens_file_done(struct gb_tokens_file *file);

/* Reads the name of a token's session or prefix into ret, which has room for a struct gb_name. text NULL: it has none.
 * A name that is given and empty is an error: it may be a variable that was not set, and a token without it may do
 * more. INVALID_NAME. */
int gb_token_read_name(const char *what, const char *text, char *ret, struct gb_error *err);

#define GB_TOKEN_SECRET_LEAST 16 /* bytes */

/* Whether text may be the secret of a token: long enough, without blanks. INVALID_ARGUMENT. */
int gb_token_secret_check(const char *secret, struct gb_error *err);

#endif
