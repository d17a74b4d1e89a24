/* A writer of Python's pickle: dicts, lists, texts, integers and None, in protocol 2, with only the codes that
 * PyTorch's memory_viz page knows. Frequent strings are written once and then referred to by number. Also a warning
 * about stored bytes that resemble a pickle. */
#ifndef GB_FORMAT_PICKLE_H
#define GB_FORMAT_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GB_PICKLE_KEYS 64
#define GB_PICKLE_DEPTH 16
/* Items that are added to a list or dict at a time. The page passes them to one call, whose arguments JavaScript
 * limits. */
#define GB_PICKLE_BATCH 500

/* Zero-initialised is empty, before gb_pickle_begin. Once memory is exhausted everything that follows is dropped. */
struct gb_pickle {
    char *s;
    size_t used;
    size_t size;
    bool failed;
    const char *keys[GB_PICKLE_KEYS]; /* static texts that were written already */
    unsigned key_count;
    unsigned depth;
    struct {
        bool dict;
        unsigned count; /* of items since the last batch; a dict's are pairs */
    } level[GB_PICKLE_DEPTH];
};

void gb_pickle_begin(struct gb_pickle *p);
void gb_pickle_end(struct gb_pickle *p);
void gb_pickle_done(struct gb_pickle *p);

/* Inside a dict every value has its key, which is static text; inside a list key is NULL. */
void gb_pickle_open(struct gb_pickle *p, const char *key, char bracket); /* '{' or '[' */
void gb_pickle_close(struct gb_pickle *p);
void gb_pickle_string(struct gb_pickle *p, const char *key, const char *value); /* UTF-8 */
void gb_pickle_word(struct gb_pickle *p, const char *key, const char *value);   /* static text */
void gb_pickle_u64(struct gb_pickle *p, const char *key, uint64_t value);
void gb_pickle_i64(struct gb_pickle *p, const char *key, int64_t value);
void gb_pickle_bool(struct gb_pickle *p, const char *key, bool value);
void gb_pickle_null(struct gb_pickle *p, const char *key);

/* Files that hold arrays in a form of their own, which is not read here. Pure. */

/* A sentence about data[0..n), the first bytes of what is stored as bytes: that it resembles an archive, a compressed
 * file or a pickle. Static text; NULL: neither. */
const char *gb_archive_warning(const void *data, size_t n);

#endif
