/* A log of one or two files, opened and replayed into a recovery. The input says where frames lie
 * and what their bodies are; headers and checksums are sound unless it says otherwise. A log that
 * opens opens again, with the same entries.
 *
 * INPUT: u8 files (1 or 2) | per file: u16 previous_end of the second | frames, each
 *   u8 flags | u16 body size | body | with its flag: u8 blocks left out before it, u16 sequences or
 *   their jump; flag END ends the file. */
#include "storage/base/crc32c.h"

#include "storage/recovery.h"
#include "storage/wal.h"
#include "storage/wal_entry.h"
#include "storage/wal_file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/sim_env.h"

enum { FILE_BYTES = 256 << 10, FRAME_BYTES_MAX = 64 << 10 };
enum {
    FLAG_END = 1,
    FLAG_GAP = 2,      /* blocks left out */
    FLAG_JUMP = 4,     /* the sequence jumps */
    FLAG_COUNT = 8,    /* the frame lies about its sequences */
    FLAG_DAMAGE = 16,  /* its checksum does not hold */
    FLAG_UNSYNCED = 32 /* synced_to says nothing of what lies before */
};

static const uint8_t store_id[16] = {1, 2, 3};

static uint64_t file_first(uint32_t number)
{
    return (uint64_t)(number + 1) << 40;
}

static uint32_t sequences_of(struct nd_slice body)
{
    uint32_t sum = 0, sequences;
    size_t size;

    while (body.size > 0) {
        (void)nd_wal_entry_peek(body, &size, &sequences);
        if (size == 0) {
            break;
        }
        sum += sequences;
        body = nd_slice_make(body.data + size, body.size - size);
    }
    return sum;
}

/* One frame into the file; its end. */
static uint64_t frame_put(uint8_t *file, uint64_t at, uint64_t *sequence, struct nd_reader *in)
{
    struct nd_wal_frame_writer writer;
    uint8_t flags = nd_read_u8(in);
    uint16_t body_size = nd_read_u16(in);
    struct nd_slice body = fuzz_take(in, body_size);

    at += (flags & FLAG_GAP) != 0 ? (uint64_t)nd_read_u8(in) % 4 * ND_WAL_BLOCK : 0;
    *sequence += (flags & FLAG_JUMP) != 0 ? nd_read_u16(in) : 0;
    uint32_t sequences = (flags & FLAG_COUNT) != 0 ? nd_read_u16(in) : sequences_of(body);
    if ((flags & FLAG_END) != 0 || at + nd_wal_frame_bytes(body.size) > FILE_BYTES) {
        return FILE_BYTES;
    }
    struct nd_wal_frame frame = {.epoch = nd_get_u64(file + 32), /* of the header */
                                 .at = at,
                                 .first_sequence = *sequence,
                                 .synced_to = (flags & FLAG_UNSYNCED) != 0 ? 0 : at,
                                 .body_size = (uint32_t)body.size,
                                 .sequences = sequences};
    nd_wal_frame_begin(&writer, file + at, &frame);
    nd_wal_frame_add(&writer, body);
    size_t size = nd_wal_frame_end(&writer);
    file[at + ND_WAL_FRAME_HEADER_SIZE - 1] ^= (flags & FLAG_DAMAGE) != 0 ? 1 : 0;
    *sequence += sequences;
    return at + size;
}

static void file_put(const struct nd_env *env, uint32_t number, struct nd_reader *in)
{
    uint8_t *file = nd_calloc(1, FILE_BYTES);
    char path[ND_WAL_PATH_SIZE];
    uint64_t sequence = file_first(number);
    uint16_t previous = number == 0 ? 0 : nd_read_u16(in);
    /* A log that follows one without entries says what that said. */
    uint64_t previous_end = previous == 0 ? 0 : file_first(number - 1) - 1 + previous;
    struct nd_wal_header header = {.epoch = 1000 + number,
                                   .writer = 5,
                                   .first_sequence = sequence,
                                   .previous_end = previous_end,
                                   .file_bytes = FILE_BYTES};

    FUZZ_CHECK(file != NULL);
    memcpy(header.store_id, store_id, sizeof store_id);
    nd_wal_header_put(file, &header);
    for (uint64_t at = ND_WAL_BLOCK; at < FILE_BYTES && nd_reader_left(in) > 0;) {
        at = frame_put(file, at, &sequence, in);
    }
    nd_wal_file_path(path, "data/wal", file_first(number));
    FUZZ_CHECK(nd_env_replace_file(env, path, nd_slice_make(file, FILE_BYTES), NULL) == ND_OK);
    nd_free(file);
}

struct replay {
    struct nd_recovery recovery;
    uint64_t last; /* sequence */
    uint64_t entries;
    uint32_t crc;   /* of what was replayed */
    char text[512]; /* why it did not open */
};

static enum nd_err replay_one(void *arg, const struct nd_wal_entry *entry, struct nd_errmsg *msg)
{
    struct replay *replay = arg;
    uint64_t numbers[3] = {(uint64_t)entry->type, entry->sequence, entry->sequence_last};

    FUZZ_CHECK(entry->sequence > replay->last && entry->sequence_last >= entry->sequence);
    replay->last = entry->sequence_last;
    replay->entries += 1;
    replay->crc = nd_crc32c(replay->crc, numbers, sizeof numbers);
    if (entry->records.size > 0) {
        replay->crc = nd_crc32c(replay->crc, entry->records.data, entry->records.size);
    }
    return nd_recovery_replay(&replay->recovery, entry, msg);
}

static void recovered_drop(struct nd_recovery *recovery, bool is_finished)
{
    struct nd_recovered_partition *partition;

    while ((partition = nd_recovery_pop(recovery)) != NULL) {
        struct nd_buf bytes;
        nd_buf_init(&bytes, SIZE_MAX);
        nd_positions_put(&bytes, &partition->positions); /* asserts that it is an encoding */
        nd_buf_release(&bytes);
        FUZZ_CHECK(!is_finished ||
                   partition->positions.next_offset >= partition->positions.flushed_offset);
        nd_recovered_partition_free(partition);
    }
    nd_recovery_release(recovery);
}

static enum nd_err open_once(const struct nd_env *env, struct replay *replay)
{
    struct nd_wal *wal;
    struct nd_errmsg msg = {""};
    struct nd_recovery_options recovery = {.env = env, .data_dir = "data"};
    struct nd_wal_options options = {.env = env,
                                     .dir = "data/wal",
                                     .member = 9,
                                     .file_bytes = FILE_BYTES,
                                     .frame_bytes_max = FRAME_BYTES_MAX,
                                     .staged_bytes_max = 1 << 20,
                                     .keep_bytes = FILE_BYTES,
                                     .must_exist = true};

    memset(replay, 0, sizeof *replay);
    memcpy(recovery.store_id, store_id, sizeof store_id);
    memcpy(options.store_id, store_id, sizeof store_id);
    nd_recovery_init(&replay->recovery, &recovery);
    enum nd_err err = nd_wal_open(&wal, &options, replay_one, replay, &msg);
    if (err == ND_OK) {
        err = nd_recovery_finish(&replay->recovery, &msg);
        nd_wal_close(wal);
    }
    if (err != ND_OK && err != ND_ERR_CORRUPT) {
        fprintf(stderr, "%s\n", msg.text);
    }
    FUZZ_CHECK(err == ND_OK || (err == ND_ERR_CORRUPT && msg.text[0] != '\0'));
    snprintf(replay->text, sizeof replay->text, "%s", msg.text);
    recovered_drop(&replay->recovery, err == ND_OK);
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_reader in = nd_reader_make(nd_slice_make(data, size));
    struct sim_env *sim = sim_env_new(1);
    const struct nd_env *env = sim_env_get(sim);
    uint32_t files = 1 + nd_read_u8(&in) % 2u;
    struct replay first, second;

    FUZZ_CHECK(nd_env_mkdirs(env, "data/wal", NULL) == ND_OK);
    for (uint32_t i = 0; i < files; i++) {
        file_put(env, i, &in);
    }
    if (open_once(env, &first) == ND_OK) {
        enum nd_err err = open_once(env, &second);
        if (err != ND_OK) {
            fprintf(stderr, "%s\n", second.text);
        }
        FUZZ_CHECK(err == ND_OK);
        FUZZ_CHECK(first.entries == second.entries && first.crc == second.crc);
    }
    sim_env_free(sim);
    return 0;
}
