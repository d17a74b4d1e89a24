/* The pickle writer: what was written is read again by the few codes that the page knows, with every batch whole and
 * every reference to a text that was given a number. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "format/pickle.h"
#include "fuzz.h"

#define TEXT_MAX 64

const char *const gb_fuzz_seeds[] = {
    "\x01\x02w\x11t\x02hi\x03\x22n\x44N\x05\x61\x62z",
    "\x02\x03\x05\xff\xff\xff\xff\xff\xff\xff\xff\x15\x80\x01\x01\x02\x03\x04\x05\x06",
    NULL,
};

static const char *const words[] = {"a", "action", "addr", "size", "frames", "device_traces", "segments", "é", ""};

/* What was written and what was read, in one plain text each. */
struct told {
    char *s;
    size_t n;
    size_t size;
};

static void tell(struct told *t, char kind, const char *text, size_t n) {
    if (t->size < t->n + n + 2) {
        t->size = t->size * 2 + n + 4096;
        t->s = realloc(t->s, t->size);
        FUZZ_ASSERT(t->s);
    }
    t->s[t->n++] = kind;
    memcpy(t->s + t->n, text, n);
    t->n += n;
    t->s[t->n++] = '\n';
}

static void tell_number(struct told *t, bool negative, uint64_t value) {
    char text[32];
    int n = negative ? snprintf(text, sizeof(text), "%" PRId64, (int64_t)value)
                     : snprintf(text, sizeof(text), "%" PRIu64, value);

    tell(t, '#', text, (size_t)n);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void write_value(struct gb_pickle *p, struct told *t, const char *key, unsigned kind, struct gb_fuzz_in *in) {
    const char *word = words[gb_fuzz_byte(in) % (sizeof(words) / sizeof(words[0]))];
    uint64_t number;
    char text[TEXT_MAX + 1];
    size_t n = 0;

    if (key)
        tell(t, '"', key, strlen(key));
    switch (kind) {
    case 0:
        number = gb_fuzz_number(in, 1 + gb_fuzz_byte(in) % 8);
        gb_pickle_u64(p, key, number);
        tell_number(t, false, number);
        break;
    case 1:
        number = gb_fuzz_number(in, 8) >> gb_fuzz_byte(in) % 64;
        number = gb_fuzz_byte(in) & 1 ? -number : number;
        gb_pickle_i64(p, key, (int64_t)number);
        tell_number(t, (int64_t)number < 0, number);
        break;
    case 2:
        gb_pickle_word(p, key, word);
        tell(t, '"', word, strlen(word));
        break;
    case 3:
        while (n < TEXT_MAX && in->n > 0 && (text[n] = (char)(gb_fuzz_byte(in) & 0x7f)) != '\0')
            n++;
        text[n] = '\0';
        gb_pickle_string(p, key, text);
        tell(t, '"', text, n);
        break;
    case 4:
        gb_pickle_bool(p, key, word == words[0]);
        tell(t, word == words[0] ? 'T' : 'F', "", 0);
        break;
    default:
        gb_pickle_null(p, key);
        tell(t, 'N', "", 0);
        break;
    }
}

static void write_all(struct gb_pickle *p, struct told *t, struct gb_fuzz_in *in) {
    char bracket[GB_PICKLE_DEPTH] = "{";
    unsigned depth = 1;

    gb_pickle_begin(p);
    gb_pickle_open(p, NULL, '{');
    tell(t, '{', "", 0);
    while (in->n > 0) {
        uint8_t what = gb_fuzz_byte(in);
        const char *key = bracket[depth - 1] == '{' ? words[gb_fuzz_byte(in) % 8] : NULL;
        unsigned times = what >= 0xf0 ? 600 : 1; /* more than a batch */

        if ((what & 7) == 6 && depth < GB_PICKLE_DEPTH) {
            bracket[depth] = what & 8 ? '{' : '[';
            if (key)
                tell(t, '"', key, strlen(key));
            gb_pickle_open(p, key, bracket[depth]);
            tell(t, bracket[depth++], "", 0);
        } else if ((what & 7) == 7 && depth > 1) {
            gb_pickle_close(p);
            tell(t, bracket[--depth] + 2, "", 0);
        } else {
            while (times-- > 0)
                write_value(p, t, key, what & 7, in);
        }
    }
    while (depth > 0) {
        gb_pickle_close(p);
        tell(t, bracket[--depth] + 2, "", 0);
    }
    gb_pickle_end(p);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

struct reader {
    const unsigned char *at;
    const unsigned char *end;
    struct {
        const char *s;
        size_t n;
    } memo[GB_PICKLE_KEYS];
    unsigned memos;
    struct {
        bool dict;
        unsigned items; /* since the mark; keys count */
    } level[GB_PICKLE_DEPTH];
    unsigned depth;
};

static uint64_t take(struct reader *r, unsigned bytes) {
    uint64_t value = 0;
    unsigned i;

    FUZZ_ASSERT((size_t)(r->end - r->at) >= bytes);
    for (i = 0; i < bytes; i++)
        value |= (uint64_t)*r->at++ << 8 * i;
    return value;
}

static void read_text(struct reader *r, struct told *t) {
    size_t n = take(r, 4);
    const char *s = (const char *)r->at;

    FUZZ_ASSERT((size_t)(r->end - r->at) >= n);
    r->at += n;
    tell(t, '"', s, n);
    if (r->at < r->end && *r->at == 'q') {
        r->at++;
        FUZZ_ASSERT(take(r, 1) == r->memos && r->memos < GB_PICKLE_KEYS);
        r->memo[r->memos].s = s;
        r->memo[r->memos++].n = n;
    }
}

static void read_long(struct reader *r, struct told *t) {
    unsigned n = (unsigned)take(r, 1);
    uint64_t value = take(r, n > 8 ? 8 : n);
    bool negative = n <= 8 && value >> (8 * n - 1) & 1;

    FUZZ_ASSERT(n >= 1 && n <= 9 && (n < 9 || take(r, 1) == 0));
    if (negative && n < 8)
        value |= ~(uint64_t)0 << 8 * n;
    tell_number(t, negative, value);
}

static void read_open(struct reader *r, struct told *t, bool dict) {
    FUZZ_ASSERT(r->depth < GB_PICKLE_DEPTH && take(r, 1) == '(');
    r->level[r->depth].dict = dict;
    r->level[r->depth++].items = 0;
    tell(t, dict ? '{' : '[', "", 0);
}

/* A batch ends. */
static void read_added(struct reader *r, struct told *t, bool dict) {
    FUZZ_ASSERT(r->depth > 0 && r->level[r->depth - 1].dict == dict);
    FUZZ_ASSERT(!dict || r->level[r->depth - 1].items % 2 == 0);
    FUZZ_ASSERT(r->level[r->depth - 1].items <= GB_PICKLE_BATCH * (dict ? 2u : 1u));
    r->level[r->depth - 1].items = 0;
    if (r->at < r->end && *r->at == '(') {
        r->at++;
        return;
    }
    r->depth--;
    tell(t, dict ? '}' : ']', "", 0);
}

static void read_one(struct reader *r, struct told *t, unsigned char code) {
    unsigned i;

    if (r->depth > 0 && code != 'u' && code != 'e')
        r->level[r->depth - 1].items++;
    switch (code) {
    case 'X':
        read_text(r, t);
        break;
    case 'h':
        i = (unsigned)take(r, 1);
        FUZZ_ASSERT(i < r->memos);
        tell(t, '"', r->memo[i].s, r->memo[i].n);
        break;
    case 'K':
        tell_number(t, false, take(r, 1));
        break;
    case 'M':
        tell_number(t, false, take(r, 2));
        break;
    case 'J':
        tell_number(t, false, take(r, 4));
        break;
    case 0x8a:
        read_long(r, t);
        break;
    case '}':
    case ']':
        read_open(r, t, code == '}');
        break;
    case 'u':
    case 'e':
        read_added(r, t, code == 'u');
        break;
    default:
        FUZZ_ASSERT(code == 'N' || code == 0x88 || code == 0x89);
        tell(t, code == 'N' ? 'N' : code == 0x88 ? 'T' : 'F', "", 0);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gb_fuzz_in in = {data, size};
    struct told wrote = {0};
    struct told found = {0};
    struct gb_pickle p = {0};
    struct reader r;

    if (size > 512)
        return 0;
    write_all(&p, &wrote, &in);
    FUZZ_ASSERT(!p.failed);
    r = (struct reader){.at = (unsigned char *)p.s + 2, .end = (unsigned char *)p.s + p.used - 1};
    FUZZ_ASSERT(p.used > 3 && memcmp(p.s, "\x80\x02", 2) == 0 && *r.end == '.');
    while (r.at < r.end)
        read_one(&r, &found, *r.at++);
    FUZZ_ASSERT(r.depth == 0 && found.n == wrote.n && memcmp(found.s, wrote.s, found.n) == 0);
    gb_pickle_done(&p);
    free(wrote.s);
    free(found.s);
    return 0;
}
