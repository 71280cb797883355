/* A valid shared library that is not NVRTC, for SMELT_NVRTC. */
int not_nvrtc(void);

int not_nvrtc(void) {
    return 0;
}
