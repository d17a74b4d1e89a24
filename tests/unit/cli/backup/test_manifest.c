/* What a place of backups holds, and what of a checkpoint is there already. */
#include <stdlib.h>
#include <string.h>

#include "cli/backup/manifest.h"
#include "gb_test.h"

#define ENTRY                                                                                                          \
    "{\"buffer\":\"w\",\"file\":\"00001.safetensors\",\"id\":7,\"generation\":3,\"run\":\"1a2b\",\"size\":5000,"       \
    "\"file_crc32c\":\"8F00c2d1\"}"
#define OBJECT "objects/7.3.1a2b.8f00c2d1.safetensors"
#define INDEX "{\"metadata\":{\"total_size\":1},\"weight_map\":{\"w\":\"00001.safetensors\",\"v\":\"other\"}}"

static struct gb_backup_manifest manifest;
static struct gpubuf_error err;

static void teardown(void) {
    gb_backup_manifest_done(&manifest);
}

static json_t *json_of(const char *text) {
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);

    ck_assert_msg(value != NULL, "%s", text);
    return value;
}

static int take(const char *version, const char *entries) {
    char text[2048];

    snprintf(text, sizeof text, "{\"version\":%s,\"session\":\"s\",\"entries\":[%s]}", version, entries);
    gb_backup_manifest_done(&manifest);
    return gb_backup_manifest_take(json_of(text), json_of(INDEX), &manifest, &err);
}

/* ENTRY with the value of one key replaced. */
static const char *entry_with(const char *key, const char *value) {
    static char text[1024];
    json_t *entry = json_of(ENTRY);
    char *dumped;

    if (value != NULL)
        json_object_set_new(entry, key, json_of(value));
    else
        json_object_del(entry, key);
    dumped = json_dumps(entry, 0);
    snprintf(text, sizeof text, "%s", dumped);
    free(dumped);
    json_decref(entry);
    return text;
}

START_TEST(test_a_file_of_a_checkpoint) {
    ck_assert_int_eq(take("1", ENTRY), 0);
    ck_assert_uint_eq(manifest.count, 1);
    ck_assert_uint_eq(manifest.bytes, 5000);
    ck_assert_str_eq(manifest.files[0].buffer, "w");
    ck_assert_str_eq(manifest.files[0].file, "00001.safetensors");
    ck_assert_uint_eq(manifest.files[0].crc, 0x8f00c2d1);
    ck_assert_str_eq(manifest.files[0].object, OBJECT);
    ck_assert(gb_backup_manifest_has(&manifest, OBJECT));
    ck_assert(!gb_backup_manifest_has(&manifest, "objects/7.3.1a2b.8f00c2d1"));
    ck_assert_int_eq(take("1", ""), 0);
    ck_assert_uint_eq(manifest.count, 0);
}
END_TEST

/* The same bytes have the same object whatever their number in the checkpoint; each other generation has another. */
START_TEST(test_what_another_checkpoint_needs_sent) {
    static const struct {
        const char *key, *value;
        bool same;
    } cases[] = {{"file", "\"00009.safetensors\"", true},
                 {"buffer", "\"renamed\"", true},
                 {"id", "8", false},
                 {"generation", "4", false},
                 {"run", "\"1a2c\"", false},
                 {"file_crc32c", "\"8f00c2d2\"", false}};

    ck_assert_int_eq(take("1", entry_with(cases[_i].key, cases[_i].value)), 0);
    ck_assert_int_eq(gb_backup_manifest_has(&manifest, OBJECT), cases[_i].same);
}
END_TEST

/* Names from a daemon or a place must not lead out of the folder, nor into another object. */
START_TEST(test_entries_that_are_none) {
    static const struct {
        const char *key, *value;
    } cases[] = {{"file", "\"../x\""},
                 {"file", "\".x\""},
                 {"file", "\"a/b\""},
                 {"file", "\"\""},
                 {"file", NULL},
                 {"size", "0"},
                 {"size", "-1"},
                 {"size", "\"5000\""},
                 {"size", NULL},
                 {"file_crc32c", "\"8f00c2\""},
                 {"file_crc32c", "\"8f00c2dg\""},
                 {"file_crc32c", NULL},
                 {"id", "\"../x\""},
                 {"generation", "true"},
                 {"run", "\"\""},
                 {"run", "\"0123456789012345678901234567890123456789\""}};

    ck_assert_msg(take("1", entry_with(cases[_i].key, cases[_i].value)) < 0, "%s: %s", cases[_i].key, cases[_i].value);
    ck_assert_int_eq(err.code, GPUBUF_BAD_ANSWER);
    ck_assert_msg(strstr(err.detail, "entry 1 ") != NULL, "%s", err.detail);
}
END_TEST

START_TEST(test_manifests_that_are_none) {
    ck_assert_int_eq(take("2", ENTRY), -1);
    ck_assert_msg(strstr(err.detail, "version 2") != NULL, "%s", err.detail);
    gb_backup_manifest_done(&manifest);
    ck_assert_int_eq(gb_backup_manifest_take(json_of("{\"version\":1}"), json_of(INDEX), &manifest, &err), -1);
    gb_backup_manifest_done(&manifest);
    ck_assert_int_eq(gb_backup_manifest_take(json_of("{\"version\":1,\"entries\":[]}"), NULL, &manifest, &err), -1);
}
END_TEST

static int read_text(const char *text) {
    gb_backup_manifest_done(&manifest);
    return gb_backup_manifest_read(text, strlen(text), "nas", &manifest, &err);
}

START_TEST(test_a_manifest_is_read_as_it_was_written) {
    char *text;

    ck_assert_int_eq(take("1", ENTRY), 0);
    text = gb_backup_manifest_text(&manifest);
    ck_assert_int_eq(read_text(text), 0);
    ck_assert_uint_eq(manifest.count, 1);
    ck_assert_uint_eq(manifest.files[0].crc, 0x8f00c2d1);
    ck_assert_str_eq(manifest.files[0].object, OBJECT);
    ck_assert_str_eq(gb_cli_text(manifest.checkpoint, "session"), "s");
    text[strlen(text) / 2] = '\0';
    ck_assert_int_eq(read_text(text), -1);
    ck_assert_int_eq(err.code, GPUBUF_INPUT_FAILED);
    ck_assert_msg(strncmp(err.detail, "nas: its manifest is damaged", 28) == 0, "%s", err.detail);
    free(text);
}
END_TEST

/* A place keeps the names that it had when an earlier gpubuf wrote them. */
START_TEST(test_objects_have_the_names_that_the_place_says) {
    static const struct {
        const char *object;
        bool good;
    } cases[] = {{"objects/old-name", true},
                 {"objects/../x", false},
                 {"objects/.x", false},
                 {"objects/", false},
                 {"objects/a/b", false},
                 {"/etc/passwd", false},
                 {"", false}};
    char text[2048];

    snprintf(text, sizeof text,
             "{\"gpubuf_backup\":1,\"checkpoint\":{\"version\":1,\"entries\":[" ENTRY "]},\"index\":" INDEX
             ",\"objects\":{\"00001.safetensors\":\"%s\"}}",
             cases[_i].object);
    ck_assert_int_eq(read_text(text), cases[_i].good ? 0 : -1);
    if (cases[_i].good)
        ck_assert_str_eq(manifest.files[0].object, cases[_i].object);
    else
        ck_assert_msg(strstr(err.detail, "names no object for the file 00001.safetensors") != NULL, "%s", err.detail);
}
END_TEST

START_TEST(test_other_documents) {
    static const char *const texts[] = {
        "", "[]", "{}", "{\"gpubuf_backup\":2}", "{\"gpubuf_backup\":1}", "{\"gpubuf_backup\":1,\"gpubuf_backup\":1}"};

    ck_assert_int_eq(read_text(texts[_i]), -1);
}
END_TEST

/* Readers of safetensors follow the index; tensors of no file of this backup stay as they are. */
START_TEST(test_the_index_names_objects) {
    json_t *index;
    char *text;

    ck_assert_int_eq(take("1", ENTRY), 0);
    text = gb_backup_index_text(&manifest);
    index = json_of(text);
    ck_assert_str_eq(gb_cli_text(index, "weight_map.w"), OBJECT);
    ck_assert_str_eq(gb_cli_text(index, "weight_map.v"), "other");
    ck_assert_str_eq(gb_cli_text(manifest.index, "weight_map.w"), "00001.safetensors");
    json_decref(index);
    free(text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("backup/manifest");
    TCase *cases = tcase_create("manifest");

    tcase_add_checked_fixture(cases, NULL, teardown);
    tcase_add_test(cases, test_a_file_of_a_checkpoint);
    tcase_add_loop_test(cases, test_what_another_checkpoint_needs_sent, 0, 6);
    tcase_add_loop_test(cases, test_entries_that_are_none, 0, 16);
    tcase_add_test(cases, test_manifests_that_are_none);
    tcase_add_test(cases, test_a_manifest_is_read_as_it_was_written);
    tcase_add_loop_test(cases, test_objects_have_the_names_that_the_place_says, 0, 7);
    tcase_add_loop_test(cases, test_other_documents, 0, 6);
    tcase_add_test(cases, test_the_index_names_objects);
    suite_add_tcase(suite, cases);
    return gb_test_run(suite);
}
