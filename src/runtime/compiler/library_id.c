/* Build-ids from ELF notes (System V ABI, chapter 5, "Note Section"). */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/compiler/library_id.h"
#include "runtime/hash.h"

enum {
    MAX_PROGRAM_HEADERS = 64,
    MAX_NOTES = 16384,     /* bytes of one note segment */
    HASHED_END = 64 * 1024 /* bytes hashed at either end of a file without a build-id */
};

/* 0: all bytes were read; 1: the file ends before; -1 with errno. */
static int read_at(int fd, void *bytes, size_t length, uint64_t offset) {
    size_t done = 0;
    if (offset > INT64_MAX - length)
        return 1;
    while (done < length) {
        ssize_t got = pread(fd, (char *)bytes + done, length - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -1 : 1;
        done += (size_t)got;
    }
    return 0;
}

static size_t padded(size_t length) {
    return (length + 3) & ~(size_t)3;
}

/* Takes a build-id or the emulator's note; ignores others. */
static void take_note(const Elf64_Nhdr *note, const unsigned char *name,
                      const unsigned char *content, struct smelt__library_id *id) {
    if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(name, "GNU", 4) == 0 &&
        note->n_descsz > 0 && note->n_descsz <= SMELT__LIBRARY_ID) {
        memset(id->bytes, 0, sizeof id->bytes);
        memcpy(id->bytes, content, note->n_descsz);
        id->length = note->n_descsz;
    }
    if (note->n_type == SMELT__EMULATOR_NOTE_TYPE &&
        note->n_namesz == sizeof SMELT__EMULATOR_NOTE &&
        memcmp(name, SMELT__EMULATOR_NOTE, sizeof SMELT__EMULATOR_NOTE) == 0)
        id->is_emulator = 1;
}

/* Searches one segment's notes. */
static void search_notes(const unsigned char *notes, size_t length, struct smelt__library_id *id) {
    size_t at = 0;
    while (length - at >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr note;
        memcpy(&note, notes + at, sizeof note);
        at += sizeof note;
        if (note.n_namesz > length - at || padded(note.n_namesz) > length - at)
            return;
        const unsigned char *name = notes + at;
        at += padded(note.n_namesz);
        if (note.n_descsz > length - at)
            return;
        take_note(&note, name, notes + at, id);
        if (padded(note.n_descsz) > length - at)
            return;
        at += padded(note.n_descsz);
    }
}

/* Ignores segments that are truncated or too large. 0; -1 with errno when reading fails. */
static int search_segments(int fd, const Elf64_Ehdr *header, struct smelt__library_id *id) {
    unsigned char notes[MAX_NOTES];
    Elf64_Phdr segments[MAX_PROGRAM_HEADERS];
    int count = header->e_phnum < MAX_PROGRAM_HEADERS ? header->e_phnum : MAX_PROGRAM_HEADERS;

    int result = read_at(fd, segments, (size_t)count * sizeof *segments, header->e_phoff);
    if (result)
        return result < 0 ? -1 : 0;
    for (int i = 0; i < count; i++) {
        if (segments[i].p_type != PT_NOTE || segments[i].p_filesz > sizeof notes)
            continue;
        result = read_at(fd, notes, segments[i].p_filesz, segments[i].p_offset);
        if (result < 0)
            return -1;
        if (result == 0)
            search_notes(notes, segments[i].p_filesz, id);
    }
    return 0;
}

static int hash_ends(int fd, uint64_t size, struct smelt__library_id *id) {
    uint64_t end = size < HASHED_END ? size : HASHED_END;
    int result = -1;
    XXH3_state_t *state = XXH3_createState();
    unsigned char *bytes = malloc(HASHED_END);

    errno = ENOMEM;
    if (!state || !bytes || XXH3_128bits_reset(state) != XXH_OK)
        goto out;
    errno = EIO; /* if the file was truncated meanwhile */
    XXH3_128bits_update(state, &size, sizeof size);
    if (read_at(fd, bytes, end, 0))
        goto out;
    XXH3_128bits_update(state, bytes, end);
    if (read_at(fd, bytes, end, size - end))
        goto out;
    XXH3_128bits_update(state, bytes, end);
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(state));
    memcpy(id->bytes, digest.digest, sizeof digest.digest);
    id->length = sizeof digest.digest;
    result = 0;
out:
    free(bytes);
    XXH3_freeState(state);
    return result;
}

static int is_shared_library(const Elf64_Ehdr *header) {
    return memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
           header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_type == ET_DYN &&
           header->e_phentsize == sizeof(Elf64_Phdr);
}

int smelt__library_id_read(const char *path, struct smelt__library_id *id) {
    int result = -1, error;
    struct stat status;
    Elf64_Ehdr header;

    memset(id, 0, sizeof *id);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -1;
    if (fstat(fd, &status))
        goto out;
    result = S_ISREG(status.st_mode) ? read_at(fd, &header, sizeof header, 0) : 1;
    if (result == 0 && !is_shared_library(&header))
        result = 1;
    if (result == 0)
        result = search_segments(fd, &header, id);
    if (result == 0 && !id->length)
        result = hash_ends(fd, (uint64_t)status.st_size, id);
out:
    error = errno;
    close(fd);
    errno = error;
    return result;
}
