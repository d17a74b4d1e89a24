/* Reads the framing of a chunked body (RFC 9112, 7.1), byte by byte as it arrives. It keeps no bytes, and bounds what
 * stands between chunks, so that no input makes it grow. The exchange calls it on transfer loops. */
#include "http/message/chunked.h"

#include "base/encoding.h"
#include "http/message/fields.h"

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

/* A byte that may stand in an extension or in a field's value. */
static bool is_text(char c) {
    return (unsigned char)c >= 0x20 ? c != 0x7f : c == '\t';
}

static const char *read_size(struct gb_chunked *c, char byte) {
    int digit = gb_hex_digit(byte);

    if (digit >= 0) {
        if (++c->digits > GB_CHUNKED_DIGITS_MAX)
            return "a chunk's size has more than 16 digits";
        c->left = c->left << 4 | (unsigned)digit;
        return NULL;
    }
    if (c->digits == 0)
        return "a chunk does not begin with its size in hexadecimal digits";
    c->skipped = 0;
    if (byte == '\r')
        c->state = GB_CHUNKED_SIZE_LF;
    else if (byte == ';')
        c->state = GB_CHUNKED_EXTENSION;
    else if (is_blank(byte))
        c->state = GB_CHUNKED_BLANK;
    else
        return "a chunk's size is followed by something else than CR LF or an extension";
    return NULL;
}

static const char *read_extension(struct gb_chunked *c, char byte) {
    if (++c->skipped > GB_CHUNKED_EXTENSION_MAX)
        return "a chunk's extension is longer than 1024 bytes";
    if (c->state == GB_CHUNKED_BLANK) {
        if (byte == ';')
            c->state = GB_CHUNKED_EXTENSION;
        else if (!is_blank(byte))
            return "blanks follow a chunk's size";
        return NULL;
    }
    if (byte == '\r')
        c->state = GB_CHUNKED_SIZE_LF;
    else if (!is_text(byte))
        return "a chunk's extension has a control byte";
    return NULL;
}

static const char *read_trailer(struct gb_chunked *c, char byte) {
    if (c->state == GB_CHUNKED_TRAILER && byte == '\r') {
        c->state = GB_CHUNKED_END_LF;
        return NULL;
    }
    if (++c->skipped > GB_CHUNKED_TRAILER_MAX)
        return "the trailer fields are longer than 8192 bytes";
    if (c->state == GB_CHUNKED_TRAILER_VALUE) {
        if (byte == '\r')
            c->state = GB_CHUNKED_TRAILER_LF;
        else if (!is_text(byte))
            return "a trailer field has a control byte";
        return NULL;
    }
    if (c->state == GB_CHUNKED_TRAILER_NAME && byte == ':')
        c->state = GB_CHUNKED_TRAILER_VALUE;
    else if (gb_field_is_token((unsigned char)byte))
        c->state = GB_CHUNKED_TRAILER_NAME;
    else
        return "a trailer field has no name";
    return NULL;
}

static const char *read_line_end(struct gb_chunked *c, char byte) {
    if (byte != (c->state == GB_CHUNKED_DATA_CR ? '\r' : '\n'))
        return c->state == GB_CHUNKED_DATA_CR || c->state == GB_CHUNKED_DATA_LF
                   ? "a chunk's data is not followed by CR LF"
                   : "a CR is not followed by LF";
    switch (c->state) {
    case GB_CHUNKED_SIZE_LF:
        c->state = c->left > 0 ? GB_CHUNKED_DATA : GB_CHUNKED_TRAILER;
        c->skipped = 0;
        break;
    case GB_CHUNKED_DATA_CR:
        c->state = GB_CHUNKED_DATA_LF;
        break;
    case GB_CHUNKED_DATA_LF:
        c->state = GB_CHUNKED_SIZE;
        c->digits = 0;
        break;
    case GB_CHUNKED_TRAILER_LF:
        c->state = GB_CHUNKED_TRAILER;
        break;
    default:
        c->state = GB_CHUNKED_DONE;
        break;
    }
    return NULL;
}

static const char *read_byte(struct gb_chunked *c, char byte) {
    switch (c->state) {
    case GB_CHUNKED_SIZE:
        return read_size(c, byte);
    case GB_CHUNKED_BLANK:
    case GB_CHUNKED_EXTENSION:
        return read_extension(c, byte);
    case GB_CHUNKED_TRAILER:
    case GB_CHUNKED_TRAILER_NAME:
    case GB_CHUNKED_TRAILER_VALUE:
        return read_trailer(c, byte);
    default:
        return read_line_end(c, byte);
    }
}

ssize_t gb_chunked_read(struct gb_chunked *c, const char *s, size_t n, const char **ret_why) {
    size_t i;

    for (i = 0; i < n && c->state != GB_CHUNKED_DATA && c->state != GB_CHUNKED_DONE; i++) {
        *ret_why = read_byte(c, s[i]);
        if (*ret_why)
            return -1;
    }
    return (ssize_t)i;
}

void gb_chunked_took(struct gb_chunked *c, uint64_t n) {
    c->left -= n;
    if (c->left == 0)
        c->state = GB_CHUNKED_DATA_CR;
}
