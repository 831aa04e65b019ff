// The README's snippet as a program. SNIPPET and BLOCK_ON are replaced.
SNIPPET

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let uri = std::env::args().nth(1).ok_or("the connection string is missing")?;
    BLOCK_ON(async {
        // The second time the name is taken.
        for _ in 0..2 {
            sign_up(&uri, "ada").await?;
        }
        Ok(())
    })
}
