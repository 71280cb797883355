/* A sound shared library that is not NVRTC, to be named in SMELT_NVRTC. */
int not_nvrtc(void);

int not_nvrtc(void) {
    return 0;
}
