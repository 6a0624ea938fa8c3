// After tsc: each half of dist says what kind of modules it has, and the package has the repository's licence.
import { copyFileSync, writeFileSync } from 'node:fs'

const root = new URL('../', import.meta.url)
writeFileSync(new URL('dist/esm/package.json', root), '{"type": "module"}\n')
writeFileSync(new URL('dist/cjs/package.json', root), '{"type": "commonjs"}\n')
copyFileSync(new URL('../../LICENSE', root), new URL('LICENSE', root))
