/* The safetensors header: any text is refused, or gives tensors without gaps that survive writing and parsing their
 * header again. */
#include <string.h>

#include "format/safetensors.h"
#include "fuzz.h"

const char *const gb_fuzz_seeds[] = {
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}",
    "{\"__metadata__\":{\"format\":\"pt\"},\"b.weight\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[8,16]},"
    "\"\\u00e9\\ud83d\\ude00\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}   ",
    "{\"x\":{\"more\":[{\"y\":[true,null,-1.5e3]}],\"dtype\":\"F8_E8M0\",\"shape\":[0,18446744073709551615],"
    "\"data_offsets\":[0,0]}}",
    "{}",
    NULL,
};

static void check_round_trip(const struct gb_safetensors *file) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_json_writer out = {0};
    struct gb_safetensors again;
    uint64_t at = 0;
    size_t i;

    gb_safetensors_open(&out);
    for (i = 0; i < file->count; i++) {
        const struct gb_safetensor *t = &file->tensors[i];

        FUZZ_ASSERT(t->begin == at && t->end >= at && strlen(t->name) == t->name_len);
        at = t->end;
        gb_safetensors_add(&out, t->name, t->dtype, &t->shape, t->begin, t->end);
    }
    FUZZ_ASSERT(at == file->bytes && gb_safetensors_close(&out, &err) == 0);
    FUZZ_ASSERT(gb_safetensors_parse(out.s + GB_SAFETENSORS_LENGTH, out.used - GB_SAFETENSORS_LENGTH, &again, &err) ==
                0);
    FUZZ_ASSERT(again.count == file->count && again.bytes == file->bytes);
    for (i = 0; i < file->count; i++)
        FUZZ_ASSERT(strcmp(again.tensors[i].name, file->tensors[i].name) == 0);
    gb_safetensors_done(&again);
    gb_json_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_safetensors file;
    size_t at;

    if (size >= GB_SAFETENSORS_PREFIX)
        gb_safetensors_data_at(data, &at, NULL);
    gb_safetensors_begins(data, size);
    if (gb_safetensors_parse((const char *)data, size, &file, &err) < 0) {
        FUZZ_ASSERT(err.code == GB_ERR_UNSUPPORTED_ARRAY || err.code == GB_ERR_BODY_TOO_LARGE);
        return 0;
    }
    check_round_trip(&file);
    gb_safetensors_done(&file);
    return 0;
}
