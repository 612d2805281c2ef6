"""A problem out of a live `nn.Module`, as source text and a file of weights. (torch)"""
